// HeadLayout: how the columns of a qkv matrix F[T, (hq + 2 hkv) hd] fall into heads: all query heads, then
// all key heads, then all value heads, each of hd columns. Query head h reads key and value head
// h / (hq / hkv).
#pragma once

#include "ir/op.h"

namespace wych::ops {

struct HeadLayout {
  i64 query_heads = 1;  // hq
  i64 kv_heads = 1;     // hkv, a divisor of hq
  i64 head_dim = 1;     // hd

  [[nodiscard]] i64 group() const { return query_heads / kv_heads; }
  [[nodiscard]] i64 query_width() const { return query_heads * head_dim; }
  [[nodiscard]] i64 kv_width() const { return kv_heads * head_dim; }
  [[nodiscard]] i64 width() const { return query_width() + 2 * kv_width(); }
  // First columns of the keys and of the values.
  [[nodiscard]] i64 key_column() const { return query_width(); }
  [[nodiscard]] i64 value_column() const { return query_width() + kv_width(); }

  void visit(ir::AttributeVisitor& visitor) const {
    visitor.visit("query_heads", query_heads);
    visitor.visit("kv_heads", kv_heads);
    visitor.visit("head_dim", head_dim);
  }
};

}  // namespace wych::ops
