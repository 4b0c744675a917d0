#include "train/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "ir/interpret.h"
#include "ir/paths.h"
#include "model/parameters.h"
#include "model/update.h"
#include "ops/step_decision.h"
#include "train/compute_device.h"

namespace wych::train {

Expected<std::unique_ptr<Engine>> Engine::create(const config::Config& config, const ProgramRequest& request,
                                                 ThreadPool& pool) {
  std::unique_ptr<Engine> engine(new Engine(config));
  engine->config_.run.device = resolve_device(config.run.device);
  WYCH_TRY(ComputeDevice device, ComputeDevice::open(engine->config_));
  ProgramRequest planned = request;
  planned.cuda = device.target();
  WYCH_TRY(engine->programs_, build_programs(engine->config_, planned));
  Programs& programs = engine->programs_;
  engine->device_name_ = device.name(pool);
  WYCH_TRY(engine->executor_, device.create_executor(engine->config_, programs.layout, pool));
  const auto load = [&](const std::optional<plan::Program>& program, int& loaded) {
    if (program) {
      loaded = engine->executor_->load(*program);
    }
  };
  load(programs.initialise, engine->initialise_);
  load(programs.refresh, engine->refresh_);
  load(programs.train, engine->train_);
  load(programs.update, engine->update_);
  load(programs.evaluate, engine->evaluate_);
  load(programs.prefill, engine->prefill_);
  load(programs.decode, engine->decode_);
  return engine;
}

void Engine::write_input(const plan::Program& program, std::string_view name, const void* data, i64 bytes) {
  const plan::Slot& slot = program.input(name);
  WYCH_CHECK(slot.type.bytes() == bytes, "input {} is {} and got {} bytes", name, slot.type.text(), bytes);
  std::memcpy(executor_->host(slot), data, static_cast<std::size_t>(bytes));
}

double Engine::read_scalar(const plan::Program& program, std::string_view name) {
  return *output(program, name).as<double>();
}

ir::View Engine::output(const plan::Program& program, std::string_view name) {
  const plan::Slot& slot = program.output(name);
  return {executor_->host(slot), &slot.type};
}

void Engine::initialise(i64 seed) {
  write_input(*programs_.initialise, "seed", &seed, sizeof seed);
  executor_->run(initialise_);
  copies_are_stale_ = true;
}

void Engine::start(int program, exec::Profiler* profiler) {
  if (copies_are_stale_ && refresh_ >= 0) {
    executor_->start(refresh_);
  }
  copies_are_stale_ = false;
  executor_->start(program, profiler);
}

void Engine::run(int program) {
  start(program);
  executor_->wait();
}

void Engine::check_documents(const data::Batch& batch) const {
  WYCH_CHECK(
      config_.data.document_mask || std::all_of(batch.document_start.begin(), batch.document_start.end(),
                                                [](i32 start) { return start <= 0; }),
      "a batch of documents for programs without data.document_mask");
}

StepResult Engine::step(const data::Batch& batch, double learning_rate, exec::Profiler* profiler) {
  check_documents(batch);
  const plan::Program& train = *programs_.train;
  const i64 rows = static_cast<i64>(batch.tokens.size()) / programs_.num_microbatches;
  const i64 bytes = rows * static_cast<i64>(sizeof(i32));
  for (i64 microbatch = 0; microbatch < programs_.num_microbatches; ++microbatch) {
    const auto write = [&](std::string_view name, const std::vector<i32>& values) {
      write_input(train, ir::microbatch_path(static_cast<int>(microbatch), name),
                  values.data() + microbatch * rows, bytes);
    };
    write(ir::kTokensPath, batch.tokens);
    write(ir::kTargetsPath, batch.targets);
    write(ir::kDocumentStartPath, batch.document_start);
  }
  if (programs_.update) {
    write_input(*programs_.update, model::kLearningRatePath, &learning_rate, sizeof learning_rate);
  }
  start(train_, profiler);
  if (programs_.update) {
    start(update_, profiler);
  }
  executor_->wait();  // the one of a step
  StepResult result;
  read_losses(result);
  read_counts(result);
  read_exact_balance(result);
  if (programs_.update) {
    read_decision(result);
  }
  return result;
}

void Engine::read_losses(StepResult& result) {
  const plan::Program& train = *programs_.train;
  i64 num_balance = 0;
  i64 num_router_z = 0;
  for (const plan::Binding& output : train.outputs) {
    const std::string_view name = output.name;
    if (name.substr(0, 5) != "loss.") {
      continue;
    }
    const double value = read_scalar(train, name);
    if (name == "loss.ce") {
      result.ce = value;
    } else if (name == "loss.z") {
      result.z = value;
    } else if (name.ends_with("router_z")) {
      result.router_z += value;
      ++num_router_z;
    } else {
      result.balance += value;
      ++num_balance;
    }
  }
  result.balance /= static_cast<double>(std::max<i64>(num_balance, 1));
  result.router_z /= static_cast<double>(std::max<i64>(num_router_z, 1));
  result.targets = read_scalar(train, "targets");
}

void Engine::read_counts(StepResult& result) {
  for (i64 layer = 0; layer < config_.model.n_layers; ++layer) {
    if (!config_.model.is_dense_layer(layer)) {
      const ir::View counts = output(*programs_.train, model::block_name(layer) + ".counts");
      const i32* begin = counts.as<i32>();
      result.expert_counts.emplace_back(begin, begin + counts.elements());
    }
  }
}

// Scope global trains on the loads of the step before; what is logged is this step's own value,
// (E / k) sum_e f_e p_e over the whole batch.
void Engine::read_exact_balance(StepResult& result) {
  const config::MoeConfig& moe = config_.model.moe;
  if (moe.router.balance_loss.scope != config::BalanceScope::kGlobal || result.expert_counts.empty()) {
    return;
  }
  const double tokens = static_cast<double>(config::batch_tokens(config_));
  double sum = 0;
  std::size_t layer = 0;
  for (i64 block = 0; block < config_.model.n_layers; ++block) {
    if (config_.model.is_dense_layer(block)) {
      continue;
    }
    const ir::View probs = output(*programs_.train, model::block_name(block) + ".mean_probs");
    const std::vector<i64>& counts = result.expert_counts[layer++];
    for (std::size_t expert = 0; expert < counts.size(); ++expert) {
      sum += static_cast<double>(counts[expert]) / tokens *
             ir::load_element(probs.data, probs.type->dtype, static_cast<i64>(expert));
    }
  }
  result.balance = static_cast<double>(moe.experts) / static_cast<double>(moe.top_k) * sum /
                   static_cast<double>(result.expert_counts.size());
}

void Engine::read_decision(StepResult& result) {
  using ops::Decision;
  const double* decision = output(*programs_.update, "decision").as<double>();
  result.grad_norm = decision[Decision::kGradNorm];
  result.learning_rate = decision[Decision::kLearningRate];
  result.applied = decision[Decision::kApplied] != 0;
  result.skipped = decision[Decision::kSkipped] != 0;
  result.non_finite = decision[Decision::kNonFinite] != 0;
  result.adam_step = static_cast<i64>(decision[Decision::kAdamStep]);
}

Evaluation Engine::evaluate(const data::Batch& batch) {
  check_documents(batch);
  const plan::Program& evaluate = *programs_.evaluate;
  const auto write = [&](std::string_view name, const std::vector<i32>& values) {
    write_input(evaluate, name, values.data(), static_cast<i64>(values.size() * sizeof(i32)));
  };
  write(ir::kTokensPath, batch.tokens);
  write(ir::kTargetsPath, batch.targets);
  write(ir::kDocumentStartPath, batch.document_start);
  run(evaluate_);
  return {read_scalar(evaluate, "ce_sum"), read_scalar(evaluate, "targets")};
}

Routes Engine::evaluated_routes() {
  Routes routes;
  for (i64 layer = 0; layer < config_.model.n_layers; ++layer) {
    if (config_.model.is_dense_layer(layer)) {
      continue;
    }
    const std::string block = model::block_name(layer);
    const ir::View experts = output(*programs_.evaluate, block + ".experts");
    const ir::View weights = output(*programs_.evaluate, block + ".weights");
    routes.experts.emplace_back(experts.as<i32>(), experts.as<i32>() + experts.elements());
    std::vector<float>& values = routes.weights.emplace_back();
    for (i64 i = 0; i < weights.elements(); ++i) {
      values.push_back(static_cast<float>(ir::load_element(weights.data, weights.type->dtype, i)));
    }
  }
  return routes;
}

std::vector<float> Engine::feed(std::span<const i32> tokens, i64 position) {
  const bool single = tokens.size() == 1;
  const plan::Program& program = single ? *programs_.decode : *programs_.prefill;
  const i64 capacity = program.input(ir::kTokensPath).type.elements();
  WYCH_CHECK(!tokens.empty() && static_cast<i64>(tokens.size()) <= capacity, "{} tokens for {}",
             tokens.size(), capacity);
  std::vector<i32> ids(static_cast<std::size_t>(capacity),
                       0);  // what follows the tokens is never attended to
  std::copy(tokens.begin(), tokens.end(), ids.begin());
  const std::vector<i32> document_start(ids.size(), static_cast<i32>(-position));
  const auto start = static_cast<i32>(position);
  const auto last = static_cast<i32>(tokens.size()) - 1;
  const i64 bytes = capacity * static_cast<i64>(sizeof(i32));
  write_input(program, ir::kTokensPath, ids.data(), bytes);
  write_input(program, ir::kDocumentStartPath, document_start.data(), bytes);
  write_input(program, "start", &start, sizeof start);
  write_input(program, "last", &last, sizeof last);
  run(single ? decode_ : prefill_);
  const ir::View logits = output(program, "logits");
  std::vector<float> result(static_cast<std::size_t>(config_.model.vocab_size));
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = static_cast<float>(ir::load_element(logits.data, logits.type->dtype, static_cast<i64>(i)));
  }
  return result;
}

std::vector<Engine::Tensor> Engine::checkpoint_tensors() const {
  std::vector<Tensor> tensors;
  for (const auto& [path, slot] : programs_.layout.slots()) {
    const bool is_weight = slot.arena == ir::Category::kWeights && !path.starts_with(ir::kComputePrefix);
    const bool is_state =
        slot.arena == ir::Category::kState && !path.starts_with("step.") && !path.starts_with("cache.");
    if (is_weight || is_state) {
      tensors.push_back({path, slot.type, is_weight});
    }
  }
  return tensors;
}

const plan::Slot& Engine::slot(std::string_view path) const {
  const plan::Slot* slot = programs_.layout.find(path);
  WYCH_CHECK(slot != nullptr, "no persistent value '{}'", path);
  return *slot;
}

const ir::TensorType& Engine::type(std::string_view path) const { return slot(path).type; }

std::vector<std::byte> Engine::read(std::string_view path) const {
  std::vector<std::byte> bytes(static_cast<std::size_t>(type(path).bytes()));
  executor_->read(slot(path), bytes);
  return bytes;
}

std::vector<double> Engine::read_doubles(std::string_view path) const {
  const std::vector<std::byte> bytes = read(path);
  std::vector<double> values(static_cast<std::size_t>(type(path).elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = ir::load_element(bytes.data(), type(path).dtype, static_cast<i64>(i));
  }
  return values;
}

ir::View Engine::persistent(std::string_view path) { return {executor_->host(slot(path)), &type(path)}; }

void Engine::write(std::string_view path, std::span<const std::byte> bytes) {
  executor_->write(slot(path), bytes);
  copies_are_stale_ = true;
}

}  // namespace wych::train
