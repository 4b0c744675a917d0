#include "ir/op.h"

#include <fmt/format.h>

#include <iterator>

#include "ir/builder.h"

namespace wych::ir {
namespace {

class TextVisitor final : public AttributeVisitor {
 public:
  void visit(std::string_view name, i64 value) override { append(name, fmt::format("{}", value)); }
  void visit(std::string_view name, double value) override { append(name, fmt::format("{:g}", value)); }
  void visit(std::string_view name, std::string_view value) override { append(name, value); }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void append(std::string_view name, std::string_view value) {
    fmt::format_to(std::back_inserter(text_), "{}{}={}", text_.empty() ? "" : ", ", name, value);
  }
  std::string text_;
};

i64 sum_bytes(std::span<const TensorType> types) {
  i64 bytes = 0;
  for (const TensorType& type : types) {
    bytes += type.bytes();
  }
  return bytes;
}

}  // namespace

std::vector<ValueId> Op::vjp(Builder& builder, const NodeValues& node,
                             std::span<const ValueId> cotangents) const {
  const auto first = static_cast<NodeId>(builder.graph().nodes.size());
  const std::vector<ValueId> outputs = reference(builder, node.inputs);
  WYCH_CHECK(outputs.size() == node.outputs.size(), "op {} has neither vjp nor reference", name());
  std::vector<Seed> seeds;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (cotangents[i] != kNoValue) {
      seeds.push_back({outputs[i], cotangents[i]});
    }
  }
  return reverse(builder, first, static_cast<NodeId>(builder.graph().nodes.size()), seeds, node.inputs);
}

Cost Op::cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const {
  return {.flops = 0,
          .bytes_read = static_cast<double>(sum_bytes(inputs)),
          .bytes_written = static_cast<double>(sum_bytes(outputs)),
          .bytes_communicated = 0};
}

void Op::run_cpu(const ExecContext& /*context*/) const {
  WYCH_CHECK(false, "op {} has no CPU kernel: the expand pass must have replaced it", name());
}

void Op::launch_cuda(const CudaContext& /*context*/) const {
  WYCH_CHECK(false, "op {} has no CUDA kernel: the expand pass must have replaced it", name());
}

std::string op_text(const Op& op) {
  TextVisitor visitor;
  op.visit_attributes(visitor);
  return visitor.text().empty() ? std::string(op.name()) : fmt::format("{}({})", op.name(), visitor.text());
}

Error shape_error(std::string_view what, std::span<const TensorType> inputs) {
  std::string list;
  for (const TensorType& type : inputs) {
    list += (list.empty() ? "" : ", ") + type.text();
  }
  return {.kind = ErrorKind::kUsage,
          .where = "",
          .what = fmt::format("{}; got ({})", what, list),
          .hint = "",
          .more = {}};
}

}  // namespace wych::ir
