// The parameters of a model: one list from which graphs, initialisation, checkpoints and import take names
// and shapes (layouts: docs/model.md). Linear weights are (out, in); experts are dimension 0; in every w13
// the gate rows come first.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "ir/type.h"

namespace wych::model {

// For weight decay and learning-rate groups.
enum class ParameterGroup : u8 { kEmbedding, kNorm, kRouter, kMatrix };

struct Parameter {
  std::string name;  // "blocks.3.moe.w13"
  ir::Shape shape;
  ParameterGroup group = ParameterGroup::kMatrix;
  // Initial values: ones if init_std is 0, else normal with this standard deviation.
  double init_std = 0;
};

// In the order of the forward pass.
std::vector<Parameter> parameters(const config::ModelConfig& model);

// Whether products read a copy of the parameter in bfloat16 (ir::compute_path) in a run that computes so.
// Norms and routers use the float32 parameter itself.
bool has_compute_copy(const Parameter& parameter, DType compute);

// The name of a layer: "blocks.3".
std::string block_name(i64 layer);

}  // namespace wych::model
