// Reads tiktoken's rank files: a line per token, its bytes in base64 and its rank, which is its id. Two
// tokens are joined if the bytes of both together are a token, lowest rank first, so every way to cut a token
// in two tokens is a merge. The file has neither pattern nor special tokens: they come with the encoding's
// name.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <optional>

#include "data/tokenizer.h"

namespace wych::data {
namespace {

constexpr i32 kMaxRank = 1 << 20;

struct SpecialToken {
  std::string_view content;
  i32 id;
};

struct Encoding {
  std::string_view name;
  Pattern pattern;
  std::array<SpecialToken, 5> special_tokens;  // the first with content
};

constexpr std::array<Encoding, 5> kEncodings = {{
    {"gpt2", Pattern::kGpt2, {{{kEndOfText, 50256}}}},
    {"r50k_base", Pattern::kGpt2, {{{kEndOfText, 50256}}}},
    {"p50k_base", Pattern::kGpt2, {{{kEndOfText, 50256}}}},
    {"cl100k_base",
     Pattern::kCl100k,
     {{{kEndOfText, 100257},
       {"<|fim_prefix|>", 100258},
       {"<|fim_middle|>", 100259},
       {"<|fim_suffix|>", 100260},
       {"<|endofprompt|>", 100276}}}},
    {"o200k_base", Pattern::kO200k, {{{kEndOfText, 199999}, {"<|endofprompt|>", 200018}}}},
}};

const Encoding* find_encoding(std::string_view name) {
  const auto* const found = std::find_if(kEncodings.begin(), kEncodings.end(),
                                         [&](const Encoding& encoding) { return encoding.name == name; });
  return found == kEncodings.end() ? nullptr : found;
}

// Nothing if `text` is not base64 with padding.
std::optional<std::string> from_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.empty() || text.size() % 4 != 0) {
    return std::nullopt;
  }
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  std::string bytes;
  u32 bits = 0;
  for (std::size_t i = 0; i < text.size() - padding; ++i) {
    const std::size_t digit = kDigits.find(text[i]);
    if (digit == std::string_view::npos) {
      return std::nullopt;
    }
    bits = (bits << 6U) | static_cast<u32>(digit);
    if (i % 4 != 0) {
      bytes.push_back(static_cast<char>((bits >> (6 - 2 * (i % 4))) & 0xffU));
    }
  }
  return bytes;
}

// Reads one file.
class Reader {
 public:
  Reader(std::string_view text, const std::string& where, const TokenizerOptions& options)
      : text_(text), where_(where), options_(options) {}

  Expected<Tokenizer> read() {
    WYCH_TRY_VOID(read_ranks());
    WYCH_TRY_VOID(check_bytes());
    const std::string name =
        options_.pattern.empty() ? std::filesystem::path(where_).stem().string() : options_.pattern;
    const std::optional<Pattern> pattern = pattern_by_name(name);
    if (!pattern) {
      std::vector<std::string_view> known;
      for (const Pattern each : kPatterns) {
        known.push_back(pattern_name(each));
      }
      return error("", fmt::format("\"{}\" is not a known encoding or pattern", name),
                   fmt::format("say which pattern cuts its text (--pattern): {}", fmt::join(known, ", ")));
    }
    WYCH_TRY(std::vector<AddedToken> added, special_tokens(find_encoding(name)));
    WYCH_TRY(const std::size_t end, find_end_of_text(added, options_.end_of_text, where_));
    const i32 eos_id = added[end].id;
    std::vector<SplitStage> stages;
    stages.emplace_back(*pattern);
    std::vector<BpeMerge> merges = find_merges();
    return Tokenizer(TokenizerParts{
        .model = BpeModel(std::move(tokens_), std::move(merges), MergeRank::kResult, /*whole_pieces=*/true),
        .pretokenizer = Pretokenizer(std::move(stages)),
        .added = std::move(added),
        .eos_id = eos_id,
        .eos_origin = options_.end_of_text.empty() ? "the usual name" : "as asked for",
        .normalizer = {},
        .add_prefix_space = false,
        .prefix_ids = {},
        .json = {}});
  }

 private:
  [[nodiscard]] Error error(std::string_view place, std::string what, std::string hint) const {
    return Error{ErrorKind::kData, fmt::format("{}{}", where_, place), std::move(what), std::move(hint), {}};
  }

  [[nodiscard]] Expected<void> read_ranks() {
    i64 number = 0;
    for (std::size_t begin = 0; begin < text_.size();) {
      const std::size_t end = std::min(text_.find('\n', begin), text_.size());
      std::string_view line = text_.substr(begin, end - begin);
      begin = end + 1;
      ++number;
      if (line.ends_with('\r')) {
        line.remove_suffix(1);
      }
      if (!line.empty()) {
        WYCH_TRY_VOID(read_line(line, number));
      }
    }
    return {};
  }

  [[nodiscard]] Expected<void> read_line(std::string_view line, i64 number) {
    const std::string place = fmt::format(": line {}", number);
    const std::size_t space = std::min(line.find(' '), line.size());
    if (line.substr(0, space) == "=") {
      return {};  // Whisper's way to leave a rank unused
    }
    std::optional<std::string> bytes = from_base64(line.substr(0, space));
    const std::string_view rank_text = line.substr(std::min(space + 1, line.size()));
    i32 rank = -1;
    const auto [rest, failure] = std::from_chars(rank_text.data(), rank_text.data() + rank_text.size(), rank);
    if (!bytes || bytes->empty() || failure != std::errc() || rest != rank_text.data() + rank_text.size() ||
        rank < 0 || rank >= kMaxRank) {
      return error(place, "expected a token in base64, a space and its rank",
                   "is this a tiktoken rank file, and whole?");
    }
    tokens_.resize(std::max(tokens_.size(), static_cast<std::size_t>(rank) + 1));
    std::string& token = tokens_[static_cast<std::size_t>(rank)];
    if (!token.empty()) {
      return error(place, fmt::format("rank {} is taken twice", rank), "the file is damaged: take it anew");
    }
    token = std::move(*bytes);
    return {};
  }

  [[nodiscard]] Expected<void> check_bytes() {
    index_ = TokenIndex(tokens_);
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      const i32 first = tokens_[id].empty() ? static_cast<i32>(id) : index_.find(tokens_[id], tokens_);
      if (first != static_cast<i32>(id)) {
        return error("", fmt::format("ranks {} and {} are the same token", first, id),
                     "the file is damaged: take it anew");
      }
    }
    for (int byte = 0; byte < 256; ++byte) {
      if (index_.find(std::string(1, static_cast<char>(byte)), tokens_) < 0) {
        return error("", fmt::format("has no token for the single byte {:#04x}", byte),
                     "is this a tiktoken rank file, and whole?");
      }
    }
    return {};
  }

  [[nodiscard]] Expected<std::vector<AddedToken>> special_tokens(const Encoding* encoding) const {
    std::vector<AddedToken> added;
    for (const auto& [content, id] : options_.special_tokens) {
      added.push_back({.content = content, .id = id, .special = true});
    }
    if (added.empty() && encoding != nullptr) {
      for (const SpecialToken& token : encoding->special_tokens) {
        if (!token.content.empty()) {
          added.push_back({.content = std::string(token.content), .id = token.id, .special = true});
        }
      }
    }
    if (added.empty()) {
      return error("", "has no special tokens, as all rank files",
                   fmt::format("give those of its model, at least the one that ends a document: "
                               "--special \"{}={}\"",
                               kEndOfText, tokens_.size()));
    }
    for (std::size_t i = 0; i < added.size(); ++i) {
      const i32 id = added[i].id;
      const bool is_taken =
          id >= 0 && id < std::ssize(tokens_) && !tokens_[static_cast<std::size_t>(id)].empty();
      const bool is_repeated = std::any_of(
          added.begin(), added.begin() + static_cast<std::ptrdiff_t>(i),
          [&](const AddedToken& other) { return other.id == id || other.content == added[i].content; });
      if (added[i].content.empty() || id < 0 || id >= kMaxRank || is_taken || is_repeated) {
        return error("", fmt::format("special token \"{}\" cannot have id {}", added[i].content, id),
                     "contents and ids are distinct, and the ids are none of the file's ranks");
      }
    }
    return added;
  }

  [[nodiscard]] std::vector<BpeMerge> find_merges() const {
    std::vector<BpeMerge> merges;
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      const std::string_view token = tokens_[id];
      for (std::size_t cut = 1; cut < token.size(); ++cut) {
        const i32 left = index_.find(token.substr(0, cut), tokens_);
        const i32 right = left < 0 ? -1 : index_.find(token.substr(cut), tokens_);
        if (right >= 0) {
          merges.push_back({left, right, static_cast<i32>(id)});
        }
      }
    }
    return merges;
  }

  std::string_view text_;
  const std::string& where_;
  const TokenizerOptions& options_;
  std::vector<std::string> tokens_;  // [ranks]
  TokenIndex index_;
};

}  // namespace

Expected<Tokenizer> Tokenizer::from_ranks(std::string_view ranks, const std::string& where,
                                          const TokenizerOptions& options) {
  return Reader(ranks, where, options).read();
}

}  // namespace wych::data
