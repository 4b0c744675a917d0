// One pass over the held-out text (final_evaluation.h): each domain by itself, so a row's domain is known.
#include "train/final_evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "data/baselines.h"
#include "data/dataset.h"
#include "train/printable.h"

namespace wych::train {
namespace {

constexpr i64 kExcerptTokens = 96;              // of a domain's text that is shown
constexpr i64 kFavouriteTokens = i64{1} << 17;  // of each domain that are counted for favourites
constexpr std::size_t kMostFavourites = 8;      // per expert

std::vector<std::string> printable_tokens(const data::Tokenizer* tokenizer, std::span<const i32> ids) {
  std::vector<std::string> tokens;
  for (const i32 id : ids) {
    if (tokenizer == nullptr) {
      tokens.push_back(fmt::format("{} ", id));
      continue;
    }
    const bool is_text = 0 <= id && id < tokenizer->vocab_size() && id != tokenizer->eos_id();
    tokens.push_back(is_text ? printable(tokenizer->token(id), LineBreaks::kKeep)
                             : std::string(data::kEndOfText));
  }
  return tokens;
}

// The routes of tokens [begin, begin + count) of an evaluated batch, in the detailed layers.
void take_routes(RoutedText& text, const Routes& routes, const RoutingRecord& routing, i64 begin, i64 count) {
  for (const i64 layer : routing.detailed) {
    RoutedText::Layer& out = text.layers.emplace_back();
    for (i64 route = begin * routing.top_k; route < (begin + count) * routing.top_k; ++route) {
      out.experts.push_back(routes.experts[static_cast<std::size_t>(layer)][static_cast<std::size_t>(route)]);
      out.weights.push_back(static_cast<double>(
          routes.weights[static_cast<std::size_t>(layer)][static_cast<std::size_t>(route)]));
    }
  }
}

// How often each token took each expert, in the detailed layers.
class TokenCounts {
 public:
  explicit TokenCounts(std::size_t num_detailed) : counts_(num_detailed) {}

  void add(std::size_t detail, i32 token, i32 expert) { ++counts_[detail][key(token, expert)]; }

  // Adds a detailed layer's favourites, per expert the tokens that say most about it, and their information:
  // the sum over tokens and experts of n log(p(expert | token) / p(expert)), by which favourites are ranked.
  void finish(std::size_t detail, const data::Tokenizer* tokenizer, RoutingRecord& out) const {
    std::vector<double> of_expert(static_cast<std::size_t>(out.experts));
    std::unordered_map<i32, double> of_token;
    double sum = 0;
    for (const auto& [key, count] : counts_[detail]) {
      of_expert[static_cast<std::size_t>(expert_of(key))] += static_cast<double>(count);
      of_token[token_of(key)] += static_cast<double>(count);
      sum += static_cast<double>(count);
    }
    std::vector<std::vector<std::pair<double, i32>>> scores(of_expert.size());
    for (const auto& [key, count] : counts_[detail]) {
      const auto n = static_cast<double>(count);
      const auto expert = static_cast<std::size_t>(expert_of(key));
      const double score = n * std::log(n * sum / (of_token.at(token_of(key)) * of_expert[expert]));
      scores[expert].emplace_back(-score, token_of(key));
    }
    double information = 0;
    std::vector<std::vector<std::string>>& favourites = out.favourites.emplace_back();
    for (std::vector<std::pair<double, i32>>& expert : scores) {
      std::sort(expert.begin(), expert.end());  // so that the sum does not depend on the hash's order
      std::vector<i32> ids;
      for (const auto& [negative_score, token] : expert) {
        information -= negative_score;
        if (ids.size() < kMostFavourites && negative_score < 0) {
          ids.push_back(token);
        }
      }
      favourites.push_back(printable_tokens(tokenizer, ids));
    }
    out.token_information.push_back(sum > 0 ? information / sum / std::log(2.0) : 0);
  }

 private:
  static u64 key(i32 token, i32 expert) {
    return u64{static_cast<u32>(token)} << 32U | static_cast<u32>(expert);
  }
  static i32 token_of(u64 key) { return static_cast<i32>(key >> 32U); }
  static i32 expert_of(u64 key) { return static_cast<i32>(key & 0xffffffffU); }

  std::vector<std::unordered_map<u64, i64>> counts_;
};

struct Sums {
  double ce = 0;
  double unigram = 0;
  double bigram = 0;
  double targets = 0;
};

// The evaluation of one domain after the other.
class HeldOut {
 public:
  HeldOut(Engine& engine, const data::Instances& all, const data::Tokenizer* tokenizer,
          RoutingRecord& routing)
      : engine_(engine),
        all_(all),
        tokenizer_(tokenizer),
        options_(all.options()),
        routing_(routing),
        tokens_(routing.detailed.size()) {}

  Expected<std::optional<Sums>> domain(const std::string& name, const data::Baselines& baselines) {
    std::optional<Sums> sums;
    std::vector<data::InstanceRange> ranges = ranges_of(name);
    if (ranges.empty()) {
      return sums;
    }
    data::Instances instances = all_;
    instances.choose(std::move(ranges));
    const data::EvalReader reader(std::move(instances));
    WYCH_TRY(const data::BaselineScores scores, baselines.score(reader));
    begin_domain(name);
    sums.emplace();
    for (i64 index = 0; index < reader.num_batches(); ++index) {
      WYCH_TRY_VOID(reader.fill(index, batch_));
      const Evaluation part = engine_.evaluate(batch_);
      sums->ce += part.ce_sum;
      sums->targets += part.targets;
      const i64 first = index * options_.sequences_per_batch;
      count_routes(std::min(options_.sequences_per_batch, reader.instances().count() - first));
      if (const i64 shown = reader.instances().count() / 2 - first;
          0 <= shown && shown < options_.sequences_per_batch) {
        keep_excerpt(name, shown);
      }
    }
    sums->unigram = scores.unigram_nats * sums->targets;
    sums->bigram = scores.bigram_nats * sums->targets;
    return sums;
  }

  void finish() {
    for (std::size_t detail = 0; detail < routing_.detailed.size(); ++detail) {
      tokens_.finish(detail, tokenizer_, routing_);
    }
  }

 private:
  // The domain's part of all instances.
  [[nodiscard]] std::vector<data::InstanceRange> ranges_of(std::string_view domain) const {
    std::vector<data::InstanceRange> ranges;
    for (const data::InstanceRange& range : all_.ranges()) {
      if (all_.files()[static_cast<std::size_t>(range.file)].domain == domain) {
        ranges.push_back(range);
      }
    }
    return ranges;
  }

  void begin_domain(const std::string& name) {
    counted_ = 0;
    routing_.domains.push_back(name);
    for (std::vector<std::vector<i64>>& layer : routing_.counts) {
      layer.emplace_back(static_cast<std::size_t>(routing_.experts), 0);
    }
  }

  // Adds the routes of the first `rows` rows of the batch; the others are filling.
  void count_routes(i64 rows) {
    routes_ = engine_.evaluated_routes();
    const i64 routes = rows * options_.sequence_length * routing_.top_k;
    for (std::size_t layer = 0; layer < routing_.counts.size(); ++layer) {
      for (i64 route = 0; route < routes; ++route) {
        const i32 expert = routes_.experts[layer][static_cast<std::size_t>(route)];
        ++routing_.counts[layer].back()[static_cast<std::size_t>(expert)];
      }
    }
    if (counted_ >= kFavouriteTokens) {
      return;
    }
    counted_ += rows * options_.sequence_length;
    for (std::size_t detail = 0; detail < routing_.detailed.size(); ++detail) {
      const std::vector<i32>& experts = routes_.experts[static_cast<std::size_t>(routing_.detailed[detail])];
      for (i64 route = 0; route < routes; ++route) {
        tokens_.add(detail, batch_.tokens[static_cast<std::size_t>(route / routing_.top_k)],
                    experts[static_cast<std::size_t>(route)]);
      }
    }
  }

  void keep_excerpt(const std::string& name, i64 row) {
    if (routing_.empty()) {
      return;
    }
    const i64 begin = row * options_.sequence_length;
    const i64 count = std::min(options_.sequence_length, kExcerptTokens);
    RoutedText text;
    text.title = name;
    text.tokens = printable_tokens(
        tokenizer_,
        std::span(batch_.tokens).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)));
    take_routes(text, routes_, routing_, begin, count);
    routing_.texts.push_back(std::move(text));
  }

  Engine& engine_;
  const data::Instances& all_;
  const data::Tokenizer* tokenizer_;
  const data::BatchOptions& options_;
  RoutingRecord& routing_;
  TokenCounts tokens_;
  i64 counted_ = 0;  // tokens of this domain in tokens_
  data::Batch batch_;
  Routes routes_;
};

RoutingRecord empty_record(const config::ModelConfig& model, i64 step) {
  RoutingRecord routing;
  routing.step = step;
  routing.experts = model.moe.experts;
  routing.top_k = model.moe.top_k;
  for (i64 layer = 0; layer < model.n_layers; ++layer) {
    if (!model.is_dense_layer(layer)) {
      routing.blocks.push_back(layer);
    }
  }
  routing.counts.resize(routing.blocks.size());
  routing.detailed = detailed_layers(std::ssize(routing.blocks));
  return routing;
}

DomainScore score_of(const Sums& sums, const data::Instances& held_out, const std::string& name) {
  const auto bits = [&](double nats) { return held_out_bits(held_out, nats, name); };
  DomainScore score;
  score.name = name;
  score.targets = static_cast<i64>(sums.targets);
  score.ce = sums.ce / sums.targets;
  score.bits_per_byte = bits(score.ce);
  score.unigram_ce = sums.unigram / sums.targets;
  score.unigram_bits_per_byte = bits(score.unigram_ce);
  score.bigram_ce = sums.bigram / sums.targets;
  score.bigram_bits_per_byte = bits(score.bigram_ce);
  return score;
}

void add_scores(io::JsonObject& object, const Scores& scores) {
  object.add("ce", scores.ce)
      .add("bits_per_byte", scores.bits_per_byte)
      .add("bigram_ce", scores.bigram_ce)
      .add("bigram_bits_per_byte", scores.bigram_bits_per_byte)
      .add("unigram_ce", scores.unigram_ce)
      .add("unigram_bits_per_byte", scores.unigram_bits_per_byte);
}

// The domains that have files, in the files' order.
std::vector<std::string> domain_names(const data::Instances& held_out) {
  std::vector<std::string> names;
  for (const data::InstanceFile& file : held_out.files()) {
    if (std::find(names.begin(), names.end(), file.domain) == names.end()) {
      names.push_back(file.domain);
    }
  }
  return names;
}

}  // namespace

Expected<FinalEvaluation> evaluate_held_out(Engine& engine, const config::ModelConfig& model,
                                            std::span<const data::InstanceFile> train_files,
                                            const data::Instances& held_out, const data::Tokenizer* tokenizer,
                                            i64 step) {
  FinalEvaluation result;
  result.routing = empty_record(model, step);
  WYCH_TRY(const data::Baselines baselines, data::Baselines::train(train_files, model.vocab_size));
  HeldOut evaluation(engine, held_out, tokenizer, result.routing);
  Sums all;
  for (const std::string& name : domain_names(held_out)) {
    WYCH_TRY(const std::optional<Sums> sums, evaluation.domain(name, baselines));
    if (sums) {
      result.domains.push_back(score_of(*sums, held_out, name));
      all = {all.ce + sums->ce, all.unigram + sums->unigram, all.bigram + sums->bigram,
             all.targets + sums->targets};
    }
  }
  evaluation.finish();
  static_cast<Scores&>(result.report) = score_of(all, held_out, "");  // "": of every domain
  result.report.step = step;
  result.report.final = true;
  return result;
}

io::JsonObject scores_json(const FinalEvaluation& evaluation) {
  std::string domains;
  for (const DomainScore& domain : evaluation.domains) {
    io::JsonObject object;
    add_scores(object, domain);
    object.add("name", domain.name).add("targets", domain.targets);
    domains += (domains.empty() ? "" : ",") + object.text();
  }
  io::JsonObject all;
  add_scores(all, evaluation.report);
  all.add_raw("domains", "[" + domains + "]");
  return all;
}

double held_out_bits(const data::Instances& held_out, double nats, std::string_view domain) {
  i64 tokens = 0;
  i64 text_bytes = 0;
  for (const data::InstanceFile& file : held_out.files()) {
    if (domain.empty() || file.domain == domain) {
      if (file.text_bytes == 0) {
        return 0;
      }
      tokens += file.tokens.num_tokens();
      text_bytes += file.text_bytes;
    }
  }
  return data::bits_per_byte(nats, tokens, text_bytes);
}

RoutedText route_text(Engine& engine, const data::Tokenizer* tokenizer, const data::BatchOptions& options,
                      const RoutingRecord& routing, std::string title, std::span<const i32> ids,
                      i64 num_given) {
  const auto sequence = static_cast<std::size_t>(options.sequence_length);
  const std::size_t all = sequence * static_cast<std::size_t>(options.sequences_per_batch);
  const std::span<const i32> shown = ids.first(std::min(ids.size(), sequence));
  data::Batch batch;
  batch.tokens.assign(all, options.eos_id);
  std::copy(shown.begin(), shown.end(), batch.tokens.begin());
  batch.targets.assign(all, data::kIgnoredTarget);
  batch.document_start.assign(all, 0);
  engine.evaluate(batch);
  RoutedText text;
  text.title = std::move(title);
  text.num_given = num_given;
  text.tokens = printable_tokens(tokenizer, shown);
  take_routes(text, engine.evaluated_routes(), routing, 0, std::ssize(shown));
  return text;
}

}  // namespace wych::train
