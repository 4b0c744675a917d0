// The way of a text through the parts, alone or many at once. The file formats are in tokenizer_json.cc,
// tokenizer_json_writer.cc and tiktoken_file.cc.
#include "data/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>

#include "base/check.h"
#include "base/file.h"

namespace wych::data {
namespace {

// Runs of texts that are encoded together, at least this many bytes: what a thread takes at a time.
constexpr std::size_t kChunkBytes = std::size_t{1} << 20U;
// Below, making a cache of pieces costs more than it saves.
constexpr std::size_t kCacheFromBytes = std::size_t{1} << 13U;

// U+FFFD, for a byte that the vocabulary lacks.
constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// In order of preference.
constexpr std::string_view kUsualEnds[] = {
    kEndOfText, "<|end_of_text|>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<|eos|>", "<eos>", "</s>",
    "<EOT>"};

}  // namespace

Expected<std::size_t> find_end_of_text(std::vector<AddedToken>& added, const std::string& wanted,
                                       const std::string& where) {
  const auto find = [&](std::string_view content) {
    const auto found =
        std::find_if(added.begin(), added.end(), [&](const AddedToken& t) { return t.content == content; });
    return static_cast<std::size_t>(found - added.begin());
  };
  std::size_t index = added.size();
  if (!wanted.empty()) {
    index = find(wanted);
  } else {
    for (const std::string_view usual : kUsualEnds) {
      index = index < added.size() ? index : find(usual);
    }
  }
  if (index == added.size()) {
    return Error{ErrorKind::kData,
                 where,
                 wanted.empty()
                     ? fmt::format("has no end-of-text token: none of {}", fmt::join(kUsualEnds, " "))
                     : fmt::format("has no {}, which is to be the end-of-text token", wanted),
                 "name the token that ends a document (--eos)",
                 {}};
  }
  added[index].special = true;
  return index;
}

// Memory of one thread; cheap to make but for the cache.
struct Tokenizer::Worker {
  std::optional<PieceCache> cache;
  Pretokenizer::Scratch pretokenizer;
  std::string repaired;
  std::string normalized;
  std::string prefixed;
};

Tokenizer::Tokenizer(TokenizerParts parts) : parts_(std::move(parts)) {
  const std::vector<std::string>& tokens = parts_.model.tokens();
  vocab_size_ = std::ssize(tokens);
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  for (std::size_t i = 0; i < parts_.added.size(); ++i) {
    AddedToken token = parts_.added[i];
    WYCH_CHECK(token.id >= 0 && added_by_id_.emplace(token.id, i).second, "added token {} twice", token.id);
    if (token.id < std::ssize(tokens)) {
      const std::string& bytes = tokens[static_cast<std::size_t>(token.id)];
      WYCH_CHECK(bytes.empty() || (bytes == token.content && !token.special), "added token {} is \"{}\"",
                 token.id, bytes);
    }
    vocab_size_ = std::max(vocab_size_, i64{token.id} + 1);
    if (token.normalized) {
      std::string buffer;
      token.content = std::string(parts_.normalizer.apply(token.content, buffer));
    }
    (token.normalized ? normalized : raw).push_back(std::move(token));
  }
  raw_added_ = AddedTokenMatcher(std::move(raw));
  normalized_added_ = AddedTokenMatcher(std::move(normalized));
  const auto end = added_by_id_.find(parts_.eos_id);
  WYCH_CHECK(end != added_by_id_.end() && parts_.added[end->second].special, "end-of-text id {}",
             parts_.eos_id);
}

Tokenizer::Tokenizer(std::vector<std::string> tokens, std::vector<BpeMerge> merges, i32 eos_id,
                     Pattern pattern)
    : Tokenizer([&] {
        std::vector<SplitStage> stages;
        stages.emplace_back(pattern);
        AddedToken end{.content = std::string(kEndOfText), .id = eos_id, .special = true};
        return TokenizerParts{.model = BpeModel(std::move(tokens), std::move(merges), MergeRank::kPosition,
                                                /*whole_pieces=*/false),
                              .pretokenizer = Pretokenizer(std::move(stages)),
                              .added = {std::move(end)},
                              .eos_id = eos_id,
                              .eos_origin = "its own",
                              .normalizer = {},
                              .add_prefix_space = false,
                              .prefix_ids = {},
                              .json = {}};
      }()) {}

Tokenizer Tokenizer::bytes() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  tokens.emplace_back();
  return Tokenizer(std::move(tokens), {}, 256);
}

Expected<Tokenizer> Tokenizer::load(const std::string& source, const TokenizerOptions& options) {
  if (source == "byte") {
    return bytes();
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(source, ignored)) {
    return load((std::filesystem::path(source) / "tokenizer.json").string(), options);
  }
  WYCH_TRY(const std::string text, read_file(source, ErrorKind::kData));
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = source.ends_with(".json") || (first != std::string::npos && text[first] == '{');
  if (!is_json) {
    return from_ranks(text, source, options);
  }
  if (!options.end_of_text.empty()) {
    return from_json(text, source, options);
  }
  TokenizerOptions resolved = options;
  WYCH_TRY(resolved.end_of_text, configured_end_of_text(source));
  WYCH_TRY(Tokenizer tokenizer, from_json(text, source, resolved));
  if (!resolved.end_of_text.empty()) {
    tokenizer.parts_.eos_origin = "tokenizer_config.json";
  }
  return tokenizer;
}

void Tokenizer::encode_segment(std::string_view text, Worker& worker, std::vector<i32>& ids) const {
  if (parts_.add_prefix_space && !text.starts_with(' ')) {
    worker.prefixed = " ";
    worker.prefixed += text;
    text = worker.prefixed;
  }
  if (worker.cache) {
    parts_.pretokenizer.for_each(text, worker.pretokenizer, [&](std::string_view piece) {
      parts_.model.encode(piece, *worker.cache, ids);
    });
  } else {
    parts_.pretokenizer.for_each(text, worker.pretokenizer,
                                 [&](std::string_view piece) { parts_.model.encode(piece, ids); });
  }
}

void Tokenizer::encode_text(std::string_view text, SpecialText special, Worker& worker,
                            std::vector<i32>& ids) const {
  ids.insert(ids.end(), parts_.prefix_ids.begin(), parts_.prefix_ids.end());
  if (!parts_.model.covers(text)) {
    worker.repaired.clear();
    for (const char byte : text) {
      worker.repaired += parts_.model.has_byte(byte) ? std::string_view(&byte, 1) : kReplacement;
    }
    text = worker.repaired;
  }
  const auto on_token = [&](i32 id) { ids.push_back(id); };
  const auto on_text = [&](std::string_view segment) { encode_segment(segment, worker, ids); };
  raw_added_.split(
      text, special,
      [&](std::string_view segment) {
        segment = parts_.normalizer.apply(segment, worker.normalized);
        normalized_added_.split(segment, special, on_text, on_token);
      },
      on_token);
}

std::vector<i32> Tokenizer::encode(std::string_view text, SpecialText special) const {
  Worker worker;
  if (text.size() >= kCacheFromBytes) {
    worker.cache.emplace();
  }
  std::vector<i32> ids;
  encode_text(text, special, worker, ids);
  return ids;
}

std::vector<std::vector<i32>> Tokenizer::encode_all(std::span<const std::string> texts, ThreadPool& pool,
                                                    SpecialText special) const {
  std::vector<std::size_t> chunk_begins;
  std::size_t bytes = kChunkBytes;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (bytes >= kChunkBytes) {
      chunk_begins.push_back(i);
      bytes = 0;
    }
    bytes += texts[i].size();
  }
  const auto num_chunks = static_cast<i64>(chunk_begins.size());
  chunk_begins.push_back(texts.size());
  std::vector<std::vector<i32>> results(texts.size());
  // A worker, with what its cache knows, passes from chunk to chunk.
  std::mutex mutex;
  std::vector<std::unique_ptr<Worker>> idle;
  pool.parallel_for(num_chunks, [&](i64 chunk) {
    std::unique_ptr<Worker> worker;
    {
      const std::lock_guard lock(mutex);
      if (!idle.empty()) {
        worker = std::move(idle.back());
        idle.pop_back();
      }
    }
    if (worker == nullptr) {
      worker = std::make_unique<Worker>();
      worker->cache.emplace();
    }
    const auto index = static_cast<std::size_t>(chunk);
    for (std::size_t i = chunk_begins[index]; i < chunk_begins[index + 1]; ++i) {
      results[i].reserve(texts[i].size() / 4 + 8);
      encode_text(texts[i], special, *worker, results[i]);
    }
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(worker));
  });
  return results;
}

std::string_view Tokenizer::end_of_text() const {
  return parts_.added[added_by_id_.at(parts_.eos_id)].content;
}

std::string_view Tokenizer::token(i32 id) const {
  const std::vector<std::string>& tokens = parts_.model.tokens();
  if (id < std::ssize(tokens) && !tokens[static_cast<std::size_t>(id)].empty()) {
    return tokens[static_cast<std::size_t>(id)];
  }
  const auto added = added_by_id_.find(id);
  const bool is_text = added != added_by_id_.end() && !parts_.added[added->second].special;
  return is_text ? std::string_view(parts_.added[added->second].content) : std::string_view();
}

std::string Tokenizer::decode(std::span<const i32> ids) const {
  std::string text;
  for (const i32 id : ids) {
    if (id >= 0 && id < vocab_size()) {
      text.append(token(id));
    }
  }
  return text;
}

}  // namespace wych::data
