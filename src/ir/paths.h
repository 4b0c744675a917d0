// Paths that graphs agree on: inputs of a microbatch, what a step shares, and where gradients live.
#pragma once

#include <string>
#include <string_view>

namespace wych::ir {

// Inputs of a microbatch, each i32[T]: token ids; targets (-100: ignored); position within the sequence of
// the first token of the token's document.
inline constexpr const char* kTokensPath = "tokens";
inline constexpr const char* kTargetsPath = "targets";
inline constexpr const char* kDocumentStartPath = "document_start";
// f64[1], the number of valid targets of the whole batch, by which every loss divides. An input of a
// microbatch's graph; the first node of the step computes it.
inline constexpr const char* kDenominatorPath = "step.denominator";

// Input "tokens" of microbatch 2 of a step: "microbatch.2.tokens".
std::string microbatch_path(int microbatch, std::string_view input);
// Where a run computes in bfloat16: the copy of a float32 weight that products read,
// "compute.blocks.0.moe.w13".
inline constexpr std::string_view kComputePrefix = "compute.";
std::string compute_path(std::string_view weight);
// The gradient of a weight or of its compute copy: "grad.blocks.0.moe.w13".
std::string gradient_path(std::string_view weight);

}  // namespace wych::ir
