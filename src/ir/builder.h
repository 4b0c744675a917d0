// Builder: appends nodes to one graph. Types are inferred at once; a shape error is thrown as GraphError with
// the path of the node, and turned into an Error by whoever owns the builder (model::build). Paths nest by
// scopes: inside scope("blocks.3") a value named "moe.w13" is "blocks.3.moe.w13".
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/expected.h"
#include "ir/graph.h"
#include "ir/op.h"

namespace wych::ir {

// A shape error on its way from an op to the function that builds the graph.
class GraphError : public std::exception {
 public:
  explicit GraphError(Error error) : error_(std::move(error)), text_(error_.text()) {}
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }
  [[nodiscard]] const Error& error() const { return error_; }

 private:
  Error error_;
  std::string text_;
};

class Builder {
 public:
  // Appends to `graph`, which must outlive the builder.
  explicit Builder(Graph& graph) : graph_(graph) {}
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  [[nodiscard]] Graph& graph() { return graph_; }
  [[nodiscard]] const TensorType& type(ValueId id) const { return graph_.type(id); }

  // A value that the host fills before the program runs. `path` is not scoped.
  ValueId input(std::string_view path, const TensorType& type);
  // A value that exists before the program and outlives it. Asking for a path again returns the same value;
  // another type for it is a programmer's fault. `path` is not scoped.
  ValueId persistent(std::string_view path, const TensorType& type, Category category);

  // Appends a node; returns its outputs. With an accumulator, output op->accumulates() adds into it.
  std::vector<ValueId> add(std::shared_ptr<const Op> op, std::vector<ValueId> inputs,
                           ValueId accumulator = kNoValue);
  // The same for an op of one output.
  ValueId add_one(std::shared_ptr<const Op> op, std::vector<ValueId> inputs, ValueId accumulator = kNoValue);

  // Stores a value of this program under a path of its own, which other programs can read. `path` is not
  // scoped. The value's buffer becomes the persistent slot; nothing is copied.
  void bind(ValueId id, std::string_view path, Category category);

  // Names a transient value, inside the current scope; returns it.
  ValueId name(ValueId id, std::string_view path);
  // The full path of a name in the current scope.
  [[nodiscard]] std::string scoped(std::string_view path) const;

  // Until the returned object dies, names are inside `path`. If `region`, nodes belong to the region of the
  // full path (recompute and pipeline stages cut at regions).
  class Scope {
   public:
    Scope(Scope&& other) noexcept
        : builder_(std::exchange(other.builder_, nullptr)), length_(other.length_), region_(other.region_) {}
    Scope& operator=(Scope&&) = delete;
    ~Scope();

   private:
    friend class Builder;
    Scope(Builder* builder, std::size_t length, i32 region)
        : builder_(builder), length_(length), region_(region) {}
    Builder* builder_;
    std::size_t length_;
    i32 region_;
  };
  [[nodiscard]] Scope scope(std::string_view path, bool region = false);

  void set_phase(Phase phase) { phase_ = phase; }
  [[nodiscard]] Phase phase() const { return phase_; }
  void set_region(i32 region) { region_ = region; }
  [[nodiscard]] i32 region() const { return region_; }
  void set_microbatch(i32 microbatch) { microbatch_ = microbatch; }

  void loss(std::string_view name, ValueId value, double weight) {
    graph_.losses.push_back({std::string(name), value, weight});
  }
  void output(std::string_view name, ValueId value) { graph_.outputs.push_back({std::string(name), value}); }

 private:
  Graph& graph_;
  std::string prefix_;
  Phase phase_ = Phase::kForward;
  i32 region_ = 0;
  i32 microbatch_ = -1;
};

// The cotangents of `wanted` (kNoValue: zero) given `seeds` over nodes [first, last) of the builder's graph,
// by appending reverse nodes in the builder's phase and the region of the node they differentiate. Weight
// gradients add into each other where the kernel can (Op::accumulates). Used by autodiff and the default vjp.
struct Seed {
  ValueId value = kNoValue;
  ValueId cotangent = kNoValue;
};
std::vector<ValueId> reverse(Builder& builder, NodeId first, NodeId last, std::span<const Seed> seeds,
                             std::span<const ValueId> wanted);

}  // namespace wych::ir
