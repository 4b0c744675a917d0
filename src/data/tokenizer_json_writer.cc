// Writes a tokenizer as tokenizer.json. The same bytes for the same tokenizer.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "data/byte_alphabet.h"
#include "data/tokenizer.h"

namespace wych::data {
namespace {

using Json = nlohmann::ordered_json;  // keys stay in order

Json byte_level(bool use_regex, bool add_prefix_space) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

// Tokenizers that were not read from a file cut by one known pattern.
Json pretokenizer_json(const TokenizerParts& parts) {
  const std::vector<SplitStage>& stages = parts.pretokenizer.stages();
  WYCH_CHECK(stages.size() == 1 && std::holds_alternative<Pattern>(stages.front()), "stages of a file");
  const Pattern pattern = std::get<Pattern>(stages.front());
  if (pattern == Pattern::kGpt2) {
    return byte_level(true, parts.add_prefix_space);
  }
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", pattern_text(pattern)}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level(false, false)})}};
}

Json added_tokens_json(const std::vector<AddedToken>& added) {
  Json list = Json::array();
  for (const AddedToken& token : added) {
    list.push_back({{"id", token.id},
                    {"content", token.content},
                    {"single_word", token.single_word},
                    {"lstrip", token.lstrip},
                    {"rstrip", token.rstrip},
                    {"normalized", token.normalized},
                    {"special", token.special}});
  }
  return list;
}

Json model_json(const BpeModel& model, const std::vector<AddedToken>& added) {
  std::vector<std::string> texts(model.tokens().size());
  for (std::size_t id = 0; id < texts.size(); ++id) {
    texts[id] = to_alphabet(model.tokens()[id]);
  }
  for (const AddedToken& token : added) {
    texts.resize(std::max(texts.size(), static_cast<std::size_t>(token.id) + 1));
    texts[static_cast<std::size_t>(token.id)] = token.content;
  }
  Json vocabulary = Json::object();
  auto& entries = vocabulary.get_ref<Json::object_t&>();
  for (std::size_t id = 0; id < texts.size(); ++id) {
    if (!texts[id].empty()) {
      // Appended to the vector beneath: the object's own insertion searches it from the start.
      entries.Json::object_t::Container::emplace_back(texts[id], id);
    }
  }
  Json merges = Json::array();
  for (const BpeMerge& merge : model.merges()) {
    merges.push_back(texts[static_cast<std::size_t>(merge.left)] + " " +
                     texts[static_cast<std::size_t>(merge.right)]);
  }
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", model.whole_pieces()},
          {"vocab", std::move(vocabulary)},
          {"merges", std::move(merges)}};
}

}  // namespace

std::string Tokenizer::to_json() const {
  if (!parts_.json.empty()) {
    return parts_.json;
  }
  const Json root = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", added_tokens_json(parts_.added)},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", pretokenizer_json(parts_)},
                     {"post_processor", byte_level(true, false)},
                     {"decoder", byte_level(true, false)},
                     {"model", model_json(parts_.model, parts_.added)}};
  return root.dump(2) + "\n";
}

}  // namespace wych::data
