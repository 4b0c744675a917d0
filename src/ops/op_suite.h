// The op suite: what every op of the registry must pass. Each check takes one case and returns the empty
// string or what is wrong. op_suite_test.cc runs all checks over all ops, cases and compute types;
// op_suite_self_test.cc shows for each check a wrong op that it catches.
// Elements that a case marks as not to be read (NaN in CaseInput::values) hold poison: every byte equal.
#pragma once

#include <string>

#include "ir/cases.h"

namespace wych::ops {

// Outputs against the oracle and against the reference composition, within eps * sqrt(reduction_length) *
// tolerance_scale * largest entry (and 9e-16); eps is that of the coarsest float type of the case. Integers
// exactly.
// A case with neither oracle nor reference is wrong. Inputs must be left unchanged.
std::string check_values(const ir::OpCase& example, u64 seed);

// The float32 case against the float64 case of the same label on the same (float32) inputs.
std::string check_precision(const ir::OpCase& single, const ir::OpCase& twice, u64 seed);

// Float64 cases only: the vjp, through ir::reverse, against central differences of fourth order along random
// directions of each differentiable input; with all cotangents and with each output's alone. Cotangents of
// undefined elements are NaN and must not be read. Integer inputs must get no cotangent.
std::string check_gradient(const ir::OpCase& example, u64 seed);

// With an accumulator, the output is accumulator + plain output.
std::string check_accumulate(const ir::OpCase& example, u64 seed);

// Equal bits for a second run of the node and for 1, 2 and 3 threads.
std::string check_determinism(const ir::OpCase& example, u64 seed);

// Equal bits whatever outputs, workspace and unreadable input elements held before, so that every defined
// element is written and nothing undefined is read.
std::string check_poison(const ir::OpCase& example, u64 seed);

// infer() gives an Error that quotes the types for mixed dtypes, missing, superfluous and unsupported inputs
// and for inputs of another rank.
std::string check_infer(const ir::OpCase& example);

// kMay aliases executed in place give the same bits; views keep the bytes; aliased types have equal sizes.
std::string check_aliases(const ir::OpCase& example, u64 seed);

}  // namespace wych::ops
