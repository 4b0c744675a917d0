#include "model/routers/softmax.h"

#include "ops/normalize_weights.h"
#include "ops/router_linear.h"
#include "ops/softmax.h"
#include "ops/top_k.h"

namespace wych::model {

Routing softmax_router(ir::Builder& builder, ir::ValueId hidden, ir::ValueId weight,
                       const config::MoeConfig& moe) {
  Routing routing;
  routing.logits = builder.name(ops::router_linear(builder, hidden, weight), "logits");
  routing.probs = builder.name(ops::softmax(builder, routing.logits), "probs");
  const ops::TopKValues chosen = ops::top_k(builder, routing.probs, moe.top_k);
  routing.indices = builder.name(chosen.indices, "indices");
  routing.weights =
      moe.router.normalize_weights ? ops::normalize_weights(builder, chosen.values) : chosen.values;
  builder.name(routing.weights, "weights");
  return routing;
}

}  // namespace wych::model
