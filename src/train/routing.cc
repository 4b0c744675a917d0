// JSON of routing.h, written by hand and read with every length checked: a report must not trust a file.
#include "train/routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "base/file.h"
#include "io/json.h"

namespace wych::train {
namespace {

std::string path_in(const std::string& run_dir) { return run_dir + "/routing.json"; }

// "[a,b]" of what `text` makes of each element.
template <class Items, class Text>
std::string list_text(const Items& items, const Text& text) {
  std::string out = "[";
  for (const auto& item : items) {
    out += (out.size() > 1 ? "," : "") + text(item);
  }
  return out + "]";
}

std::string ints_text(const std::vector<i64>& values) { return io::json_list(values); }
std::string strings_text(const std::vector<std::string>& values) {
  return list_text(values, io::json_string);
}

std::string text_json(const RoutedText& text) {
  const auto layer_text = [](const RoutedText::Layer& layer) {
    constexpr double kPlaces = 1e3;  // a tenth of a per cent is enough for people
    return io::JsonObject()
        .add_raw("experts", ints_text(layer.experts))
        .add_raw("weights", list_text(layer.weights,
                                      [](double weight) {
                                        return io::json_number(std::round(weight * kPlaces) / kPlaces);
                                      }))
        .text();
  };
  return io::JsonObject()
      .add("title", text.title)
      .add("given", text.num_given)
      .add_raw("tokens", strings_text(text.tokens))
      .add_raw("layers", list_text(text.layers, layer_text))
      .text();
}

// Reads typed lists out of a JSON tree; any surprise makes it fail for good.
class Reader {
 public:
  [[nodiscard]] bool ok() const { return ok_; }
  void require(bool condition) { ok_ = ok_ && condition; }

  i64 integer(const io::Json* json) {
    const i64* value = json == nullptr ? nullptr : json->get<i64>();
    require(value != nullptr && *value >= 0);
    return ok_ ? *value : 0;
  }
  double number(const io::Json* json) {
    double value = 0;
    require(json != nullptr && (json->is_null() || json->number(value)));
    return value;
  }
  std::string string(const io::Json* json) {
    const std::string* value = json == nullptr ? nullptr : json->get<std::string>();
    require(value != nullptr);
    return ok_ ? *value : "";
  }
  // One element per element of the list, by `read`.
  template <class Read>
  auto list(const io::Json* json, const Read& read) {
    std::vector<decltype(read(json))> out;
    const io::Json::Array* array = json == nullptr ? nullptr : json->get<io::Json::Array>();
    require(array != nullptr);
    for (std::size_t i = 0; ok_ && i < array->size(); ++i) {
      out.push_back(read(&(*array)[i]));
    }
    return out;
  }
  std::vector<i64> integers(const io::Json* json) {
    return list(json, [this](const io::Json* item) { return integer(item); });
  }
  std::vector<std::string> strings(const io::Json* json) {
    return list(json, [this](const io::Json* item) { return string(item); });
  }

 private:
  bool ok_ = true;
};

const io::Json* member(const io::Json* json, std::string_view key) {
  return json == nullptr ? nullptr : json->find(key);
}

RoutedText read_text(Reader& reader, const io::Json* json, const RoutingRecord& record) {
  RoutedText text;
  text.title = reader.string(member(json, "title"));
  text.num_given = reader.integer(member(json, "given"));
  text.tokens = reader.strings(member(json, "tokens"));
  text.layers = reader.list(member(json, "layers"), [&](const io::Json* item) {
    RoutedText::Layer layer;
    layer.experts = reader.integers(member(item, "experts"));
    layer.weights =
        reader.list(member(item, "weights"), [&](const io::Json* weight) { return reader.number(weight); });
    const std::size_t routes = text.tokens.size() * static_cast<std::size_t>(record.top_k);
    reader.require(layer.experts.size() == routes && layer.weights.size() == routes);
    for (const i64 expert : layer.experts) {
      reader.require(expert < record.experts);
    }
    return layer;
  });
  reader.require(text.layers.size() == record.detailed.size());
  return text;
}

void check_sizes(Reader& reader, const RoutingRecord& record) {
  reader.require(record.counts.size() == record.blocks.size());
  for (const auto& layer : record.counts) {
    reader.require(layer.size() == record.domains.size());
    for (const auto& domain : layer) {
      reader.require(std::ssize(domain) == record.experts);
    }
  }
  reader.require(record.favourites.size() == record.detailed.size());
  reader.require(record.token_information.size() == record.detailed.size());
  for (const auto& layer : record.favourites) {
    reader.require(std::ssize(layer) == record.experts);
  }
  for (const i64 layer : record.detailed) {
    reader.require(layer < std::ssize(record.blocks));
  }
}

}  // namespace

std::vector<i64> detailed_layers(i64 num_layers) {
  const i64 count = std::min(num_layers, kMostDetailed);
  std::vector<i64> layers;
  for (i64 i = 0; i < count; ++i) {
    layers.push_back(count == 1 ? 0 : i * (num_layers - 1) / (count - 1));
  }
  return layers;
}

double domain_information(const std::vector<std::vector<i64>>& counts) {
  std::vector<std::vector<double>> shares;
  for (const std::vector<i64>& domain : counts) {
    const auto sum = static_cast<double>(std::accumulate(domain.begin(), domain.end(), i64{0}));
    if (sum > 0) {
      std::vector<double>& share = shares.emplace_back();
      for (const i64 count : domain) {
        share.push_back(static_cast<double>(count) / sum);
      }
    }
  }
  double bits = 0;
  const auto num_domains = static_cast<double>(shares.size());
  for (std::size_t expert = 0; !shares.empty() && expert < shares[0].size(); ++expert) {
    double mean = 0;
    for (const std::vector<double>& share : shares) {
      mean += share[expert] / num_domains;
    }
    for (const std::vector<double>& share : shares) {
      bits += share[expert] > 0 ? share[expert] / num_domains * std::log2(share[expert] / mean) : 0;
    }
  }
  return std::max(0.0, bits);
}

Expected<void> write_routing(const std::string& run_dir, const RoutingRecord& record) {
  const auto nested = [](const auto& layers, const auto& leaf) {
    return list_text(layers, [&](const auto& layer) { return list_text(layer, leaf); });
  };
  const std::string json = io::JsonObject()
                               .add("step", record.step)
                               .add("experts", record.experts)
                               .add("top_k", record.top_k)
                               .add_raw("domains", strings_text(record.domains))
                               .add_raw("blocks", ints_text(record.blocks))
                               .add_raw("counts", nested(record.counts, ints_text))
                               .add_raw("detailed", ints_text(record.detailed))
                               .add_raw("favourites", nested(record.favourites, strings_text))
                               .add("token_information", std::span(record.token_information))
                               .add_raw("texts", list_text(record.texts, text_json))
                               .text();
  return write_file_atomic(path_in(run_dir), json + "\n", ErrorKind::kData);
}

Expected<RoutingRecord> read_routing(const std::string& run_dir) {
  const std::string path = path_in(run_dir);
  if (!std::filesystem::exists(path)) {
    return RoutingRecord();
  }
  WYCH_TRY(const std::string text, read_file(path, ErrorKind::kData));
  WYCH_TRY(const io::Json json, io::parse_json(text, path, ErrorKind::kData));
  Reader reader;
  RoutingRecord record;
  record.step = reader.integer(json.find("step"));
  record.experts = reader.integer(json.find("experts"));
  record.top_k = reader.integer(json.find("top_k"));
  record.domains = reader.strings(json.find("domains"));
  record.blocks = reader.integers(json.find("blocks"));
  record.detailed = reader.integers(json.find("detailed"));
  const auto nested = [&reader](const io::Json* layers, const auto& leaf) {
    return reader.list(layers, [&](const io::Json* layer) { return reader.list(layer, leaf); });
  };
  record.counts = nested(json.find("counts"), [&](const io::Json* list) { return reader.integers(list); });
  record.favourites =
      nested(json.find("favourites"), [&](const io::Json* list) { return reader.strings(list); });
  record.token_information =
      reader.list(json.find("token_information"), [&](const io::Json* bits) { return reader.number(bits); });
  record.texts =
      reader.list(json.find("texts"), [&](const io::Json* item) { return read_text(reader, item, record); });
  check_sizes(reader, record);
  if (!reader.ok()) {
    return Error{.kind = ErrorKind::kData,
                 .where = path,
                 .what = "is not what this version writes",
                 .hint = "the next end of the run writes it anew",
                 .more = {}};
  }
  return record;
}

}  // namespace wych::train
