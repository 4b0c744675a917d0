// tokenizer.json in and out. Tokens are stored as strings over GPT-2's alphabet: each byte is one Unicode
// character, printable ones stand for themselves and the others follow from U+0100 on in order of value.
// Reading is strict: a setting that would change ids and that encode() does not honour is an error.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "data/tokenizer.h"

namespace wych::data {
namespace {

using Json = nlohmann::json;                 // for reading: look-up by key in O(log n)
using OrderedJson = nlohmann::ordered_json;  // for writing: keys stay in order

constexpr i32 kFirstShifted = 0x100;
constexpr i32 kAlphabetEnd = kFirstShifted + 68;  // 188 bytes stand for themselves, 68 are shifted

constexpr bool stands_for_itself(i32 byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

struct Alphabet {
  std::array<i32, 256> to_character{};      // byte -> code point
  std::array<i32, kAlphabetEnd> to_byte{};  // code point -> byte, -1 if none
};

constexpr Alphabet kAlphabet = [] {
  Alphabet alphabet;
  alphabet.to_byte.fill(-1);
  i32 shifted = kFirstShifted;
  for (i32 byte = 0; byte < 256; ++byte) {
    const i32 character = stands_for_itself(byte) ? byte : shifted++;
    alphabet.to_character[static_cast<std::size_t>(byte)] = character;
    alphabet.to_byte[static_cast<std::size_t>(character)] = byte;
  }
  return alphabet;
}();

// All characters of the alphabet lie below U+0800: one or two bytes of UTF-8.
std::string to_alphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    const i32 character = kAlphabet.to_character[static_cast<unsigned char>(byte)];
    if (character < 0x80) {
      text.push_back(static_cast<char>(character));
    } else {
      text.push_back(static_cast<char>(0xc0 | (character >> 6)));
      text.push_back(static_cast<char>(0x80 | (character & 0x3f)));
    }
  }
  return text;
}

// Nothing if `text` (valid UTF-8: the JSON parser saw to that) has a character outside the alphabet.
std::optional<std::string> from_alphabet(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    i32 character = static_cast<unsigned char>(text[i]);
    if (character >= 0x80) {
      if (character >= 0xe0 || i + 1 == text.size()) {
        return std::nullopt;
      }
      character = ((character & 0x1f) << 6) | (static_cast<unsigned char>(text[++i]) & 0x3f);
    }
    if (character >= kAlphabetEnd || kAlphabet.to_byte[static_cast<std::size_t>(character)] < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(kAlphabet.to_byte[static_cast<std::size_t>(character)]));
  }
  return bytes;
}

// Reads one file; every member returns an Error that names the key.
class Reader {
 public:
  Reader(const Json& root, const std::string& where) : root_(root), where_(where) {}

  Expected<Tokenizer> read() {
    WYCH_TRY_VOID(check_pipeline());
    WYCH_TRY_VOID(check_model());
    WYCH_TRY_VOID(read_vocabulary());
    WYCH_TRY_VOID(read_added_token());
    WYCH_TRY_VOID(check_tokens());
    WYCH_TRY(std::vector<BpeMerge> merges, read_merges());
    return Tokenizer(std::move(tokens_), std::move(merges), eos_id_);
  }

 private:
  [[nodiscard]] Error error(std::string_view key, std::string what) const {
    return Error{ErrorKind::kData,
                 fmt::format("{}: {}", where_, key),
                 std::move(what),
                 "give a byte-level BPE tokenizer.json as `wych data prepare` writes it",
                 {}};
  }

  static const Json& member(const Json& object, const char* key) {
    static const Json null;
    const auto found = object.is_object() ? object.find(key) : object.end();
    return object.is_object() && found != object.end() ? *found : null;
  }

  // `value` must be absent, null or equal to `allowed`.
  [[nodiscard]] Expected<void> only(std::string_view key, const Json& value, const Json& allowed) const {
    if (value.is_null() || value == allowed) {
      return {};
    }
    return error(key, fmt::format("is {}, which is not supported; expected null or {}",
                                  value.dump(-1, ' ', true).substr(0, 60), allowed.dump()));
  }

  [[nodiscard]] Expected<void> check_pipeline() const {
    if (!root_.is_object()) {
      return error("(root)", "is not a JSON object");
    }
    WYCH_TRY_VOID(only("normalizer", member(root_, "normalizer"), nullptr));
    WYCH_TRY_VOID(only("truncation", member(root_, "truncation"), nullptr));
    WYCH_TRY_VOID(only("padding", member(root_, "padding"), nullptr));
    const Json& pre = member(root_, "pre_tokenizer");
    if (member(pre, "type") != "ByteLevel" || member(pre, "add_prefix_space") != false) {
      return error("pre_tokenizer", "expected type \"ByteLevel\" with add_prefix_space false");
    }
    WYCH_TRY_VOID(only("pre_tokenizer.use_regex", member(pre, "use_regex"), true));
    if (member(member(root_, "decoder"), "type") != "ByteLevel") {
      return error("decoder", "expected type \"ByteLevel\"");
    }
    return only("post_processor.type", member(member(root_, "post_processor"), "type"), "ByteLevel");
  }

  [[nodiscard]] Expected<void> check_model() const {
    const Json& model = member(root_, "model");
    if (member(model, "type") != "BPE") {
      return error("model.type", fmt::format("is {}; expected \"BPE\"",
                                             member(model, "type").dump(-1, ' ', true).substr(0, 60)));
    }
    WYCH_TRY_VOID(only("model.dropout", member(model, "dropout"), nullptr));
    WYCH_TRY_VOID(only("model.unk_token", member(model, "unk_token"), nullptr));
    WYCH_TRY_VOID(only("model.continuing_subword_prefix", member(model, "continuing_subword_prefix"), ""));
    WYCH_TRY_VOID(only("model.end_of_word_suffix", member(model, "end_of_word_suffix"), ""));
    WYCH_TRY_VOID(only("model.fuse_unk", member(model, "fuse_unk"), false));
    WYCH_TRY_VOID(only("model.byte_fallback", member(model, "byte_fallback"), false));
    return only("model.ignore_merges", member(model, "ignore_merges"), false);
  }

  // Fills tokens_ by id and ids_ by bytes; the name of the end-of-text token is left to read_added_token.
  [[nodiscard]] Expected<void> read_vocabulary() {
    const Json& vocabulary = member(member(root_, "model"), "vocab");
    if (!vocabulary.is_object() || vocabulary.empty()) {
      return error("model.vocab", "expected an object of tokens and ids");
    }
    const bool has_end = vocabulary.contains(kEndOfText);
    tokens_.resize(vocabulary.size() + (has_end ? 0 : 1));
    taken_.resize(tokens_.size(), false);
    for (const auto& [text, value] : vocabulary.items()) {
      WYCH_TRY(const std::size_t id, take_id("model.vocab", value));
      if (text == kEndOfText) {
        end_in_vocabulary_ = static_cast<i64>(id);
        continue;
      }
      std::optional<std::string> bytes = from_alphabet(text);
      if (!bytes || bytes->empty()) {
        return error("model.vocab", fmt::format("token {} is not written in the byte alphabet", id));
      }
      tokens_[id] = std::move(*bytes);
    }
    return {};
  }

  // A number below the size of the vocabulary that no other token has.
  [[nodiscard]] Expected<std::size_t> take_id(std::string_view key, const Json& value) {
    const auto id = value.is_number_unsigned() ? value.get<u64>() : tokens_.size();
    if (id >= tokens_.size() || taken_[id]) {
      return error(key, fmt::format("id {} is not a number below {} or is taken twice",
                                    value.dump(-1, ' ', true).substr(0, 60), tokens_.size()));
    }
    taken_[id] = true;
    return static_cast<std::size_t>(id);
  }

  [[nodiscard]] Expected<void> read_added_token() {
    const Json& added = member(root_, "added_tokens");
    if (!added.is_array() || added.size() != 1 || member(added[0], "content") != kEndOfText) {
      return error("added_tokens", fmt::format("expected exactly one, {}", kEndOfText));
    }
    const Json& id = member(added[0], "id");
    if (end_in_vocabulary_ >= 0) {
      eos_id_ = static_cast<i32>(end_in_vocabulary_);
      return id == end_in_vocabulary_
                 ? Expected<void>()
                 : error("added_tokens", fmt::format("id {} of {}, but {} in model.vocab",
                                                     id.dump(-1, ' ', true), kEndOfText, eos_id_));
    }
    WYCH_TRY(const std::size_t end, take_id("added_tokens", id));
    eos_id_ = static_cast<i32>(end);
    return {};
  }

  [[nodiscard]] Expected<void> check_tokens() {
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      if (static_cast<i32>(id) == eos_id_) {
        continue;
      }
      if (!ids_.emplace(tokens_[id], static_cast<i32>(id)).second) {
        return error("model.vocab", fmt::format("token {} repeats another one", id));
      }
    }
    for (i32 byte = 0; byte < 256; ++byte) {
      if (!ids_.contains(std::string(1, static_cast<char>(byte)))) {
        return error("model.vocab", fmt::format("has no token for the single byte {:#04x}", byte));
      }
    }
    return {};
  }

  // "left right" (GPT-2's alphabet has no space) or ["left", "right"].
  [[nodiscard]] Expected<std::vector<BpeMerge>> read_merges() const {
    const Json& list = member(member(root_, "model"), "merges");
    if (!list.is_array()) {
      return error("model.merges", "expected a list");
    }
    std::vector<BpeMerge> merges;
    std::unordered_map<std::string, std::size_t> seen;  // "left right" in the alphabet -> rank
    for (std::size_t rank = 0; rank < list.size(); ++rank) {
      std::string pair;
      if (list[rank].is_string()) {
        pair = list[rank].get<std::string>();
      } else if (list[rank].is_array() && list[rank].size() == 2 && list[rank][0].is_string() &&
                 list[rank][1].is_string()) {
        pair = list[rank][0].get<std::string>() + " " + list[rank][1].get<std::string>();
      }
      const std::size_t space = pair.find(' ');
      const auto left = from_alphabet(std::string_view(pair).substr(0, space));
      const auto right =
          from_alphabet(space == std::string::npos ? "" : std::string_view(pair).substr(space + 1));
      if (!left || !right || left->empty() || right->empty()) {
        return error("model.merges", fmt::format("merge {} is not a pair of tokens", rank));
      }
      const auto left_id = ids_.find(*left);
      const auto right_id = ids_.find(*right);
      const auto result = ids_.find(*left + *right);
      if (left_id == ids_.end() || right_id == ids_.end() || result == ids_.end()) {
        return error("model.merges", fmt::format("merge {} uses a token that model.vocab lacks", rank));
      }
      if (!seen.emplace(pair, rank).second) {
        return error("model.merges", fmt::format("merge {} repeats merge {}", rank, seen[pair]));
      }
      merges.push_back({left_id->second, right_id->second, result->second});
    }
    return merges;
  }

  const Json& root_;
  const std::string& where_;
  std::vector<std::string> tokens_;  // [vocab] bytes
  std::vector<bool> taken_;          // [vocab]
  std::unordered_map<std::string, i32> ids_;
  i64 end_in_vocabulary_ = -1;
  i32 eos_id_ = -1;
};

}  // namespace

Expected<Tokenizer> Tokenizer::load(const std::string& path) {
  WYCH_TRY(const std::string text, read_file(path, ErrorKind::kData));
  return from_json(text, path);
}

Expected<Tokenizer> Tokenizer::from_json(std::string_view json, const std::string& where) {
  const Json root = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) {
    return Error{ErrorKind::kData, where, "is not valid JSON", "the file is damaged: make it again", {}};
  }
  return Reader(root, where).read();
}

std::string Tokenizer::to_json() const {
  const OrderedJson byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  OrderedJson vocabulary = OrderedJson::object();
  auto& entries = vocabulary.get_ref<OrderedJson::object_t&>();
  for (i32 id = 0; id < vocab_size(); ++id) {
    const std::string text = id == eos_id_ ? std::string(kEndOfText) : to_alphabet(token(id));
    // Appended to the vector beneath: the object's own insertion searches it from the start.
    entries.OrderedJson::object_t::Container::emplace_back(text, id);
  }
  OrderedJson merges = OrderedJson::array();
  for (const BpeMerge& merge : merges_) {
    merges.push_back(to_alphabet(token(merge.left)) + " " + to_alphabet(token(merge.right)));
  }
  const OrderedJson root = {{"version", "1.0"},
                            {"truncation", nullptr},
                            {"padding", nullptr},
                            {"added_tokens", OrderedJson::array({{{"id", eos_id_},
                                                                  {"content", kEndOfText},
                                                                  {"single_word", false},
                                                                  {"lstrip", false},
                                                                  {"rstrip", false},
                                                                  {"normalized", false},
                                                                  {"special", true}}})},
                            {"normalizer", nullptr},
                            {"pre_tokenizer", byte_level},
                            {"post_processor", byte_level},
                            {"decoder", byte_level},
                            {"model",
                             {{"type", "BPE"},
                              {"dropout", nullptr},
                              {"unk_token", nullptr},
                              {"continuing_subword_prefix", nullptr},
                              {"end_of_word_suffix", nullptr},
                              {"fuse_unk", false},
                              {"byte_fallback", false},
                              {"ignore_merges", false},
                              {"vocab", std::move(vocabulary)},
                              {"merges", std::move(merges)}}}};
  return root.dump(2) + "\n";
}

}  // namespace wych::data
