// Reads a tokenizer.json. Strict: a setting that would change ids and that the tokenizer does not honour is
// an error that names the key. A vocabulary is written in GPT-2's alphabet (byte_alphabet.h), except for the
// entries that are added tokens, which stand there as they are.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "base/file.h"
#include "data/byte_alphabet.h"
#include "data/tokenizer.h"

namespace wych::data {
namespace {

using Json = nlohmann::json;

constexpr i32 kMaxId = 1 << 20;  // a larger one is damage, and would cost its size in memory

const Json& member(const Json& object, const char* key) {
  static const Json null;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() ? *found : null;
}

std::string shown(const Json& value) { return value.dump(-1, ' ', true).substr(0, 60); }

std::string text_or_empty(const Json& value) { return value.is_string() ? value.get<std::string>() : ""; }

// Reads one file; every member returns an Error that names the key.
class Reader {
 public:
  Reader(const Json& root, const std::string& where, const TokenizerOptions& options)
      : root_(root), where_(where), options_(options) {}

  Expected<Tokenizer> read(std::string_view json) {
    WYCH_TRY_VOID(check_root());
    WYCH_TRY(Normalizer normalizer, read_normalizer());
    WYCH_TRY_VOID(read_pretokenizer());
    WYCH_TRY_VOID(check_model());
    WYCH_TRY_VOID(read_added_tokens());
    WYCH_TRY_VOID(read_vocabulary());
    WYCH_TRY_VOID(check_added_ids());
    WYCH_TRY_VOID(check_bytes());
    WYCH_TRY(std::vector<BpeMerge> merges, read_merges());
    WYCH_TRY_VOID(read_post_processor("post_processor", member(root_, "post_processor")));
    const bool whole_pieces = member(member(root_, "model"), "ignore_merges") == true;
    return Tokenizer(TokenizerParts{
        .model = BpeModel(std::move(tokens_), std::move(merges), MergeRank::kPosition, whole_pieces),
        .pretokenizer = Pretokenizer(std::move(stages_)),
        .added = std::move(added_),
        .eos_id = eos_id_,
        .eos_origin = std::move(eos_origin_),
        .normalizer = std::move(normalizer),
        .add_prefix_space = add_prefix_space_,
        .prefix_ids = std::move(prefix_ids_),
        .json = std::string(json)});
  }

 private:
  [[nodiscard]] Error error(std::string_view key, std::string what) const {
    return Error{ErrorKind::kData,
                 fmt::format("{}: {}", where_, key),
                 std::move(what),
                 "byte-level BPE tokenizers are read; docs/tokenizer.md says what of them",
                 {}};
  }

  // `value` must be absent, null or equal to `allowed`.
  [[nodiscard]] Expected<void> only(std::string_view key, const Json& value, const Json& allowed) const {
    if (value.is_null() || value == allowed) {
      return {};
    }
    return error(key, fmt::format("is {}, which is not supported; expected null{}", shown(value),
                                  allowed.is_null() ? "" : " or " + allowed.dump()));
  }

  // A boolean, or `fallback` where it is absent.
  [[nodiscard]] Expected<bool> flag(const std::string& key, const Json& value, bool fallback) const {
    if (value.is_null()) {
      return fallback;
    }
    if (!value.is_boolean()) {
      return error(key, fmt::format("is {}; expected true or false", shown(value)));
    }
    return value.get<bool>();
  }

  [[nodiscard]] Expected<void> check_root() const {
    if (!root_.is_object()) {
      return error("(root)", "is not a JSON object");
    }
    WYCH_TRY_VOID(only("truncation", member(root_, "truncation"), nullptr));
    WYCH_TRY_VOID(only("padding", member(root_, "padding"), nullptr));
    if (const Json& type = member(member(root_, "decoder"), "type"); type != "ByteLevel") {
      return error("decoder", fmt::format("has type {}; expected \"ByteLevel\"", shown(type)));
    }
    return {};
  }

  [[nodiscard]] Expected<Normalizer> read_normalizer() const {
    std::vector<NormalForm> forms;
    WYCH_TRY_VOID(add_forms("normalizer", member(root_, "normalizer"), forms));
    return Normalizer(forms);
  }

  [[nodiscard]] Expected<void> add_forms(const std::string& key, const Json& value,
                                         std::vector<NormalForm>& forms) const {
    if (value.is_null()) {
      return {};
    }
    const std::string type = text_or_empty(member(value, "type"));
    if (type == "Sequence" && key == "normalizer" && member(value, "normalizers").is_array()) {
      for (const Json& part : member(value, "normalizers")) {
        WYCH_TRY_VOID(add_forms("normalizer.normalizers", part, forms));
      }
      return {};
    }
    for (const NormalForm form : {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc, NormalForm::kNfkd}) {
      if (type == normal_form_name(form)) {
        forms.push_back(form);
        return {};
      }
    }
    return error(
        key, fmt::format("is {}; expected null, NFC, NFD, NFKC, NFKD or a Sequence of them", shown(value)));
  }

  // The last stage must be ByteLevel: what is before it cuts text, it makes bytes of it.
  [[nodiscard]] Expected<void> read_pretokenizer() {
    const Json& pre = member(root_, "pre_tokenizer");
    if (member(pre, "type") != "Sequence") {
      return read_byte_level("pre_tokenizer", pre, /*alone=*/true);
    }
    const Json& parts = member(pre, "pretokenizers");
    if (!parts.is_array() || parts.empty()) {
      return error("pre_tokenizer.pretokenizers", "expected a list that ends with ByteLevel");
    }
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const std::string key = fmt::format("pre_tokenizer.pretokenizers[{}]", i);
      const std::string type = text_or_empty(member(parts[i], "type"));
      if (type == "Split") {
        WYCH_TRY_VOID(read_split(key, parts[i]));
      } else if (type == "Digits") {
        WYCH_TRY(const bool individual,
                 flag(key + ".individual_digits", member(parts[i], "individual_digits"), false));
        stages_.emplace_back(DigitSplit{individual});
      } else {
        return error(key,
                     fmt::format("has type {}; expected Split or Digits", shown(member(parts[i], "type"))));
      }
    }
    return read_byte_level(fmt::format("pre_tokenizer.pretokenizers[{}]", parts.size() - 1), parts.back(),
                           parts.size() == 1);
  }

  [[nodiscard]] Expected<void> read_byte_level(const std::string& key, const Json& value, bool alone) {
    if (member(value, "type") != "ByteLevel") {
      return error(key, fmt::format("is {}; expected type \"ByteLevel\"", shown(value)));
    }
    if (!member(value, "add_prefix_space").is_boolean()) {
      return error(key + ".add_prefix_space", "expected true or false");
    }
    add_prefix_space_ = member(value, "add_prefix_space").get<bool>();
    if (add_prefix_space_ && !alone) {
      return error(key + ".add_prefix_space", "is true behind another stage, which is not supported");
    }
    WYCH_TRY(const bool use_regex, flag(key + ".use_regex", member(value, "use_regex"), true));
    if (use_regex) {
      stages_.emplace_back(Pattern::kGpt2);
    }
    return {};
  }

  [[nodiscard]] Expected<void> read_split(const std::string& key, const Json& value) {
    const Json& pattern = member(value, "pattern");
    const bool is_literal = member(pattern, "String").is_string();
    const Json& text = is_literal ? member(pattern, "String") : member(pattern, "Regex");
    if (!text.is_string() || text.get_ref<const std::string&>().empty()) {
      return error(key + ".pattern", "expected {\"Regex\": text} or {\"String\": text}");
    }
    constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
        {"Isolated", SplitBehavior::kIsolated},
        {"Removed", SplitBehavior::kRemoved},
        {"Contiguous", SplitBehavior::kContiguous},
        {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
        {"MergedWithNext", SplitBehavior::kMergedWithNext}};
    const std::string name = text_or_empty(member(value, "behavior"));
    const auto* const behavior = std::find_if(std::begin(kBehaviors), std::end(kBehaviors),
                                              [&](const auto& known) { return known.first == name; });
    if (behavior == std::end(kBehaviors)) {
      return error(key + ".behavior",
                   fmt::format("is {}, which is unknown", shown(member(value, "behavior"))));
    }
    WYCH_TRY(const bool invert, flag(key + ".invert", member(value, "invert"), false));
    // A known pattern matches all of a text: its matches are the pieces if they are kept one by one.
    const bool keeps_matches = behavior->second == SplitBehavior::kIsolated ||
                               (behavior->second == SplitBehavior::kRemoved && invert);
    const std::optional<Pattern> known =
        is_literal || !keeps_matches ? std::nullopt : pattern_by_text(text.get_ref<const std::string&>());
    if (known) {
      stages_.emplace_back(*known);
      return {};
    }
    Expected<RegexSplit> split =
        RegexSplit::compile(text.get_ref<const std::string&>(), is_literal, behavior->second, invert);
    if (!split) {
      return error(key + ".pattern", split.error().what);
    }
    stages_.emplace_back(*std::move(split));
    return {};
  }

  [[nodiscard]] Expected<void> check_model() const {
    const Json& model = member(root_, "model");
    if (member(model, "type") != "BPE") {
      return error("model.type", fmt::format("is {}; expected \"BPE\"", shown(member(model, "type"))));
    }
    WYCH_TRY_VOID(only("model.dropout", member(model, "dropout"), nullptr));
    WYCH_TRY_VOID(only("model.unk_token", member(model, "unk_token"), nullptr));
    WYCH_TRY_VOID(only("model.continuing_subword_prefix", member(model, "continuing_subword_prefix"), ""));
    WYCH_TRY_VOID(only("model.end_of_word_suffix", member(model, "end_of_word_suffix"), ""));
    WYCH_TRY_VOID(only("model.fuse_unk", member(model, "fuse_unk"), false));
    WYCH_TRY_VOID(only("model.byte_fallback", member(model, "byte_fallback"), false));
    WYCH_TRY(const bool ignore, flag("model.ignore_merges", member(model, "ignore_merges"), false));
    static_cast<void>(ignore);
    if (!member(model, "vocab").is_object() || member(model, "vocab").empty()) {
      return error("model.vocab", "expected an object of tokens and ids");
    }
    return {};
  }

  // A number that no other token of its list has; `taken` is by id.
  [[nodiscard]] Expected<i32> take_id(const std::string& key, const Json& value,
                                      std::vector<bool>& taken) const {
    const u64 id = value.is_number_unsigned() ? value.get<u64>() : u64{kMaxId};
    if (id >= kMaxId) {
      return error(key, fmt::format("id {} is not a number below {}", shown(value), kMaxId));
    }
    taken.resize(std::max(taken.size(), static_cast<std::size_t>(id) + 1), false);
    if (taken[id]) {
      return error(key, fmt::format("id {} is taken twice", id));
    }
    taken[id] = true;
    return static_cast<i32>(id);
  }

  [[nodiscard]] Expected<void> read_added_tokens() {
    const Json& list = member(root_, "added_tokens");
    if (!list.is_null() && !list.is_array()) {
      return error("added_tokens", "expected a list");
    }
    std::vector<bool> taken;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string key = fmt::format("added_tokens[{}]", i);
      const Json& value = list[i];
      AddedToken token;
      token.content = text_or_empty(member(value, "content"));
      if (token.content.empty()) {
        return error(key + ".content", "expected a text that is not empty");
      }
      WYCH_TRY(token.id, take_id(key + ".id", member(value, "id"), taken));
      WYCH_TRY(token.special, flag(key + ".special", member(value, "special"), false));
      WYCH_TRY(token.normalized, flag(key + ".normalized", member(value, "normalized"), !token.special));
      WYCH_TRY(token.single_word, flag(key + ".single_word", member(value, "single_word"), false));
      WYCH_TRY(token.lstrip, flag(key + ".lstrip", member(value, "lstrip"), false));
      WYCH_TRY(token.rstrip, flag(key + ".rstrip", member(value, "rstrip"), false));
      if (!added_contents_.insert(token.content).second) {
        return error(key + ".content", fmt::format("\"{}\" occurs twice", token.content));
      }
      added_.push_back(std::move(token));
    }
    WYCH_TRY(const std::size_t end,
             find_end_of_text(added_, options_.end_of_text, fmt::format("{}: added_tokens", where_)));
    eos_id_ = added_[end].id;
    eos_origin_ = options_.end_of_text.empty() ? "the usual name" : "as asked for";
    return {};
  }

  // Fills tokens_ by id. Of the added tokens only those that are text and spell themselves stay in the model.
  [[nodiscard]] Expected<void> read_vocabulary() {
    std::unordered_set<std::string> specials;
    for (const AddedToken& token : added_) {
      if (token.special) {
        specials.insert(token.content);
      }
    }
    for (const auto& [text, value] : member(member(root_, "model"), "vocab").items()) {
      WYCH_TRY(const i32 id, take_id("model.vocab", value, taken_));
      tokens_.resize(std::max(tokens_.size(), static_cast<std::size_t>(id) + 1));
      std::optional<std::string> bytes = from_alphabet(text);
      const bool is_added = added_contents_.contains(text);
      if (!is_added && (!bytes || bytes->empty())) {
        return error("model.vocab", fmt::format("token {} is not written in the byte alphabet", id));
      }
      if (is_added && (specials.contains(text) || !bytes || *bytes != text)) {
        continue;
      }
      tokens_[static_cast<std::size_t>(id)] = std::move(*bytes);
    }
    return {};
  }

  [[nodiscard]] Expected<void> check_added_ids() const {
    const Json& vocabulary = member(member(root_, "model"), "vocab");
    for (const AddedToken& token : added_) {
      const auto entry = vocabulary.find(token.content);
      const bool is_free =
          static_cast<std::size_t>(token.id) >= taken_.size() || !taken_[static_cast<std::size_t>(token.id)];
      if (entry != vocabulary.end() ? *entry != token.id : !is_free) {
        return error("added_tokens",
                     fmt::format("\"{}\" has id {}, but model.vocab {}", token.content, token.id,
                                 entry != vocabulary.end() ? "has it as " + shown(*entry)
                                                           : "has another token there"));
      }
    }
    return {};
  }

  [[nodiscard]] Expected<void> check_bytes() const {
    std::array<bool, 256> present{};
    for (const std::string& token : tokens_) {
      if (token.size() == 1) {
        present[static_cast<unsigned char>(token[0])] = true;
      }
    }
    for (std::size_t byte = 0; byte < present.size(); ++byte) {
      if (!present[byte] && BpeModel::required_byte(static_cast<int>(byte))) {
        return error("model.vocab", fmt::format("has no token for the single byte {:#04x}", byte));
      }
    }
    return {};
  }

  // "left right" (the alphabet has no space) or ["left", "right"].
  [[nodiscard]] Expected<std::vector<BpeMerge>> read_merges() const {
    const Json& list = member(member(root_, "model"), "merges");
    if (!list.is_array()) {
      return error("model.merges", "expected a list");
    }
    std::vector<BpeMerge> merges;
    merges.reserve(list.size());
    std::unordered_map<u64, std::size_t> seen;  // pair -> rank
    for (std::size_t rank = 0; rank < list.size(); ++rank) {
      const Json& entry = list[rank];
      std::string left;
      std::string right;
      if (entry.is_string()) {
        const auto& pair = entry.get_ref<const std::string&>();
        const std::size_t space = std::min(pair.find(' '), pair.size());
        left = pair.substr(0, space);
        right = space < pair.size() ? pair.substr(space + 1) : "";
      } else if (entry.is_array() && entry.size() == 2) {
        left = text_or_empty(entry[0]);
        right = text_or_empty(entry[1]);
      }
      if (left.empty() || right.empty()) {
        return error("model.merges",
                     fmt::format("merge {} is {}; expected a pair of tokens", rank, shown(entry)));
      }
      const BpeMerge merge{token_id(left), token_id(right), token_id(left + right)};
      if (merge.left < 0 || merge.right < 0 || merge.result < 0) {
        return error("model.merges",
                     fmt::format("merge {} uses \"{}\", which is no ordinary token of model.vocab", rank,
                                 merge.left < 0    ? left
                                 : merge.right < 0 ? right
                                                   : left + right));
      }
      const u64 pair = (static_cast<u64>(merge.left) << 32U) | static_cast<u64>(merge.right);
      if (const auto [first, is_new] = seen.emplace(pair, rank); !is_new) {
        return error("model.merges", fmt::format("merge {} repeats merge {}", rank, first->second));
      }
      merges.push_back(merge);
    }
    return merges;
  }

  // By its text in the alphabet; -1 if there is none or it is no token of the model.
  [[nodiscard]] i32 token_id(const std::string& text) const {
    const Json& vocabulary = member(member(root_, "model"), "vocab");
    const auto found = vocabulary.find(text);
    const i32 id = found == vocabulary.end() ? -1 : found->get<i32>();
    return id >= 0 && !tokens_[static_cast<std::size_t>(id)].empty() ? id : -1;
  }

  [[nodiscard]] Expected<void> read_post_processor(const std::string& key, const Json& value) {
    const std::string type = text_or_empty(member(value, "type"));
    if (value.is_null() || type == "ByteLevel") {  // the latter corrects offsets only
      return {};
    }
    if (type == "Sequence" && member(value, "processors").is_array()) {
      for (std::size_t i = 0; i < member(value, "processors").size(); ++i) {
        WYCH_TRY_VOID(
            read_post_processor(fmt::format("{}.processors[{}]", key, i), member(value, "processors")[i]));
      }
      return {};
    }
    if (type == "TemplateProcessing" && member(value, "single").is_array()) {
      return read_template(key, value);
    }
    return error(key, fmt::format("is {}; expected null, ByteLevel, TemplateProcessing or a Sequence of them",
                                  shown(value)));
  }

  // Special tokens before the text are honoured; documents get their end from the writer of the token file.
  [[nodiscard]] Expected<void> read_template(const std::string& key, const Json& value) {
    bool is_behind = false;
    for (const Json& part : member(value, "single")) {
      if (part.is_object() && part.contains("Sequence")) {
        is_behind = true;
        continue;
      }
      const std::string name = text_or_empty(member(member(part, "SpecialToken"), "id"));
      const Json& ids = member(member(member(value, "special_tokens"), name.c_str()), "ids");
      if (name.empty() || !ids.is_array() || is_behind) {
        return error(key + ".single", fmt::format("has {}{}; expected special tokens before the text only",
                                                  shown(part), is_behind ? " behind the text" : ""));
      }
      for (const Json& id : ids) {
        const bool is_known = std::any_of(added_.begin(), added_.end(),
                                          [&](const AddedToken& token) { return id == token.id; });
        if (!is_known) {
          return error(key + ".special_tokens",
                       fmt::format("{} has id {}, which is no added token", name, shown(id)));
        }
        prefix_ids_.push_back(id.get<i32>());
      }
    }
    return {};
  }

  const Json& root_;
  const std::string& where_;
  const TokenizerOptions& options_;
  std::vector<SplitStage> stages_;
  bool add_prefix_space_ = false;
  std::vector<AddedToken> added_;
  std::unordered_set<std::string> added_contents_;
  i32 eos_id_ = -1;
  std::string eos_origin_;
  std::vector<std::string> tokens_;  // [vocab] bytes
  std::vector<bool> taken_;          // [vocab] model.vocab has the id
  std::vector<i32> prefix_ids_;
};

}  // namespace

Expected<Tokenizer> Tokenizer::from_json(std::string_view json, const std::string& where,
                                         const TokenizerOptions& options) {
  if (!options.pattern.empty() || !options.special_tokens.empty()) {
    return Error{ErrorKind::kData,
                 where,
                 "is a tokenizer.json, which has its own pattern and special tokens",
                 "--pattern and --special are for rank files",
                 {}};
  }
  const Json root = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) {
    return Error{ErrorKind::kData, where, "is not valid JSON", "the file is damaged: take it anew", {}};
  }
  return Reader(root, where, options).read(json);
}

Expected<std::string> configured_end_of_text(const std::string& path) {
  const std::string beside = (std::filesystem::path(path).parent_path() / "tokenizer_config.json").string();
  std::error_code ignored;
  if (!std::filesystem::exists(beside, ignored)) {
    return std::string();
  }
  WYCH_TRY(const std::string text, read_file(beside, ErrorKind::kData));
  const Json root = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) {
    return Error{ErrorKind::kData, beside, "is not a JSON object", "the file is damaged: take it anew", {}};
  }
  const Json& token = member(root, "eos_token");
  const Json& content = token.is_object() ? member(token, "content") : token;
  if (!content.is_null() && (!content.is_string() || content.get_ref<const std::string&>().empty())) {
    return Error{
        ErrorKind::kData, beside + ": eos_token", "expected a text", "the file is damaged: take it anew", {}};
  }
  return text_or_empty(content);
}

}  // namespace wych::data
