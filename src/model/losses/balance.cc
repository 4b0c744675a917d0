#include "model/losses/balance.h"

#include <fmt/format.h>

#include "ops/balance_loss.h"
#include "ops/elementwise.h"
#include "ops/expert_fractions.h"
#include "ops/reduce.h"
#include "ops/slice.h"

namespace wych::model {

std::string load_fractions_path(std::string_view block) {
  return fmt::format("{}.moe.load_fractions", block);
}

ir::ValueId balance_loss(ir::Builder& builder, const Routing& routing, std::string_view block,
                         const config::MoeConfig& moe, const BatchShape& batch) {
  const DType dtype = builder.type(routing.probs).dtype;
  const auto experts = static_cast<double>(moe.experts);
  const double coefficient = experts / static_cast<double>(moe.top_k);
  switch (moe.router.balance_loss.scope) {
    case config::BalanceScope::kSequence: {
      const ir::ValueId fractions =
          ops::expert_fractions(builder, routing.indices, moe.experts, batch.sequence, dtype);
      return ops::balance_loss(builder, routing.probs, fractions,
                               coefficient / static_cast<double>(batch.batch_sequences));
    }
    case config::BalanceScope::kGlobal: {
      const ir::ValueId fractions =
          builder.persistent(load_fractions_path(block), {dtype, {1, moe.experts}}, ir::Category::kState);
      return ops::balance_loss(builder, routing.probs, fractions,
                               coefficient / static_cast<double>(batch.num_microbatches()));
    }
    case config::BalanceScope::kGlobalExact:
    case config::BalanceScope::kMicrobatch: {
      const ir::ValueId fractions =
          ops::expert_fractions(builder, routing.indices, moe.experts, batch.microbatch_tokens(), dtype);
      return ops::balance_loss(builder, routing.probs, fractions,
                               coefficient / static_cast<double>(batch.num_microbatches()));
    }
    case config::BalanceScope::kHfJoint:
      break;
  }
  WYCH_CHECK(false, "hf_joint is a loss of all layers together");
}

ir::ValueId mean_probabilities(ir::Builder& builder, const Routing& routing, const BatchShape& batch) {
  const double tokens = static_cast<double>(batch.sequence * batch.batch_sequences);
  return ops::scale(builder, ops::reduce_sum(builder, routing.probs, ops::Along::kRows), 1.0 / tokens);
}

ir::ValueId joint_balance_loss(ir::Builder& builder, const std::vector<Routing>& layers,
                               const config::MoeConfig& moe) {
  std::vector<ir::ValueId> probs;
  std::vector<ir::ValueId> indices;
  for (const Routing& layer : layers) {
    probs.push_back(layer.probs);
    indices.push_back(layer.indices);
  }
  const ir::ValueId all_probs = ops::concat(builder, probs, 0);
  const ir::ValueId all_indices = ops::concat(builder, indices, 0);
  const ir::TensorType& type = builder.type(all_probs);
  const ir::ValueId fractions =
      ops::expert_fractions(builder, all_indices, moe.experts, type.shape[0], type.dtype);
  return ops::balance_loss(builder, all_probs, fractions, static_cast<double>(moe.experts));
}

}  // namespace wych::model
