// Whole documents into instances: best fit decreasing. The longest document first; each goes to the instance
// with the least room that still holds it, the one that got there first among equals, or to a new one.
// Documents longer than an instance are cut into pieces of its length and a rest, so that nothing is lost.
#pragma once

#include <span>
#include <vector>

#include "base/types.h"
#include "data/documents.h"

namespace wych::data {

class Packing {
 public:
  // Time O(n log length), memory about 30 bytes a document. Every token of `documents` lands in exactly one
  // instance.
  static Packing pack(std::span<const TokenSpan> documents, i64 sequence_length);

  [[nodiscard]] i64 num_instances() const { return static_cast<i64>(first_.size()) - 1; }
  // The pieces of an instance in their order, together at most `sequence_length` tokens.
  [[nodiscard]] std::span<const TokenSpan> instance(i64 index) const;
  // Places without a token in all instances together.
  [[nodiscard]] i64 padding() const { return padding_; }

 private:
  std::vector<TokenSpan> pieces_;   // by instance
  std::vector<std::size_t> first_;  // [instances + 1]: where an instance's pieces begin
  i64 padding_ = 0;
};

}  // namespace wych::data
