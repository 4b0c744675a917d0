// The words and numbers that views of a run share: lines without any layout or colour.
#pragma once

#include <string>
#include <vector>

#include "base/types.h"
#include "train/run_view.h"

namespace wych::train {

// "0:01:02", hours unlimited; "?" if negative or not finite.
std::string duration_text(double seconds);
// "12,345".
std::string grouped_digits(i64 value);
// Three digits: "1.23 M"; below ten thousand all of them.
std::string short_count(i64 value);

// "4 layers, d_model 128, 4 heads of 32, 8 experts top-2 of 160 + shared 160, sequence 128".
std::string model_text(const config::ModelConfig& model);

// What there is to know before the first step. The first line is a title.
std::vector<std::string> header_lines(const RunHeader& header);

// "[step=12/1000,epoch=1,eta=0:01:02] loss=3.4120 ..."
std::string step_line(const StepReport& report);

// "evaluation: loss 3.4120, perplexity 30.33, 1.6210 bits per byte"
std::string evaluation_text(const EvalReport& report);

// The model beside what counting alone reaches: a title and a line per model that is known.
std::vector<std::string> comparison_lines(const EvalReport& report);

}  // namespace wych::train
