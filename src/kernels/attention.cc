// The blocks of kernels/attention.h: scores and gradients of 64 queries x 128 keys on the stack, every
// product a gemm_serial straight on the columns of qkv and its gradient.
#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/gemm.h"
#include "kernels/lane_sum.h"
#include "kernels/vector_math.h"

namespace wych::kernels {
namespace {

constexpr i64 kQueries = 64;  // rows of a block of scores
constexpr i64 kKeys = 128;    // and its columns

struct Range {
  i64 begin;
  i64 end;
};

// One head of one sequence: rows 0 .. S of its queries, keys and values, with stride width().
template <class T>
struct Head {
  const AttentionProblem<T>& problem;
  i64 first_token;
  i64 query_head;

  [[nodiscard]] i64 kv_head() const { return query_head / (problem.query_heads / problem.kv_heads); }
  [[nodiscard]] i64 query_column() const { return query_head * problem.head_dim; }
  [[nodiscard]] i64 key_column() const { return (problem.query_heads + kv_head()) * problem.head_dim; }
  [[nodiscard]] i64 value_column() const { return key_column() + problem.kv_heads * problem.head_dim; }
  [[nodiscard]] const T* rows(i64 column, i64 i) const {
    return problem.qkv + (first_token + i) * problem.width() + column;
  }
  // The keys that query i sees.
  [[nodiscard]] Range visible(i64 i) const {
    const i64 document = problem.document_start != nullptr ? problem.document_start[first_token + i] : 0;
    const i64 oldest = problem.window > 0 ? i + 1 - problem.window : 0;
    return {std::max({document, oldest, i64{0}}), i + 1};
  }
  // A range that holds all keys seen by queries [begin, end).
  [[nodiscard]] Range visible(i64 begin, i64 end) const {
    Range range = visible(begin);
    for (i64 i = begin + 1; i < end; ++i) {
      range.begin = std::min(range.begin, visible(i).begin);
    }
    return {range.begin, end};
  }
  // What query i sees of a block of keys, as columns of that block; begin = end if nothing.
  [[nodiscard]] Range columns(i64 i, Range keys) const {
    const Range range = visible(i);
    const i64 begin = std::clamp(range.begin, keys.begin, keys.end);
    return {begin - keys.begin, std::clamp(range.end, begin, keys.end) - keys.begin};
  }
  // scores[queries, keys] = q k^T, not scaled; rows of kKeys.
  void score(Range queries, Range keys, T* scores) const {
    gemm_serial(false, true, queries.end - queries.begin, keys.end - keys.begin, problem.head_dim,
                rows(query_column(), queries.begin), problem.width(), rows(key_column(), keys.begin),
                problem.width(), false, scores, kKeys);
  }
};

// Calls block(keys) for the blocks of a range in order.
template <class F>
void for_each_block(Range keys, i64 size, const F& block) {
  for (i64 begin = keys.begin; begin < keys.end; begin += size) {
    block(Range{begin, std::min(begin + size, keys.end)});
  }
}

template <class T>
void scale_row(T* row, i64 n, T factor) {
  for (i64 j = 0; j < n; ++j) {
    row[j] *= factor;
  }
}

// Sets to zero what lies outside `seen`.
template <class T>
void clear_unseen(T* row, i64 columns, Range seen) {
  std::fill(row, row + seen.begin, T{0});
  std::fill(row + seen.end, row + columns, T{0});
}

// The state of the softmax of one query: with the keys so far, sum = sum_j exp(s_j - largest).
template <class T>
struct Softmax {
  T largest = -std::numeric_limits<T>::infinity();
  T sum = 0;
};

// Turns scores into exp(scale score - largest), with the largest of all keys so far, and zero where unseen;
// returns the factor by which earlier results shrink.
template <class T>
T exponentials(T* row, i64 columns, Range seen, T scale, Softmax<T>& state) {
  if (seen.begin == seen.end) {
    std::fill_n(row, columns, T{0});
    return T{1};
  }
  T* scores = row + seen.begin;
  const i64 count = seen.end - seen.begin;
  const T largest = std::max(state.largest, scale * lane_max(scores, count));
  for (i64 j = 0; j < count; ++j) {
    scores[j] = exp(scores[j] * scale - largest);
  }
  clear_unseen(row, columns, seen);
  const T shrink = exp(state.largest - largest);
  state.sum = state.sum * shrink + lane_sum<T>(count, [=](i64 j) { return scores[j]; });
  state.largest = largest;
  return shrink;
}

template <class T>
void forward_block(const Head<T>& head, Range queries, T* out, T* lse) {
  const AttentionProblem<T>& problem = head.problem;
  const i64 num_queries = queries.end - queries.begin;
  const Range visible = head.visible(queries.begin, queries.end);
  alignas(64) T scores[kQueries * kKeys];
  Softmax<T> states[kQueries];
  T* out_rows = out + (head.first_token + queries.begin) * problem.out_width() + head.query_column();
  for_each_block(visible, kKeys, [&](Range keys) {
    const bool is_first = keys.begin == visible.begin;
    head.score(queries, keys, scores);
    for (i64 r = 0; r < num_queries; ++r) {
      const T shrink = exponentials(scores + r * kKeys, keys.end - keys.begin,
                                    head.columns(queries.begin + r, keys), problem.scale, states[r]);
      if (!is_first) {
        scale_row(out_rows + r * problem.out_width(), problem.head_dim, shrink);
      }
    }
    gemm_serial(false, false, num_queries, problem.head_dim, keys.end - keys.begin, scores, kKeys,
                head.rows(head.value_column(), keys.begin), problem.width(), !is_first, out_rows,
                problem.out_width());
  });
  for (i64 r = 0; r < num_queries; ++r) {
    scale_row(out_rows + r * problem.out_width(), problem.head_dim, T{1} / states[r].sum);
    lse[problem.lse_at(head.first_token, head.query_head) + queries.begin + r] =
        states[r].largest + std::log(states[r].sum);
  }
}

// What the backward reads besides the problem, and what it writes.
template <class T>
struct Gradients {
  const T* dout;
  const T* out;
  const T* lse;
  T* dqkv;
};

// In: scores of a row and the products dout . v. Out: p in `scores` and scale ds in `products`.
template <class T>
void differentiate_row(T* scores, T* products, i64 columns, Range seen, T scale, T lse, T delta) {
  clear_unseen(scores, columns, seen);
  clear_unseen(products, columns, seen);
#pragma GCC ivdep
  for (i64 j = seen.begin; j < seen.end; ++j) {
    const T p = exp(scores[j] * scale - lse);
    scores[j] = p;
    products[j] = p * (products[j] - delta) * scale;
  }
}

template <class T>
void backward_block(const Head<T>& head, Range queries, const Gradients<T>& gradients) {
  const AttentionProblem<T>& problem = head.problem;
  const i64 num_queries = queries.end - queries.begin;
  const i64 head_dim = problem.head_dim;
  const i64 width = problem.width();
  const i64 out_width = problem.out_width();
  const i64 token = head.first_token + queries.begin;
  const T* dout = gradients.dout + token * out_width + head.query_column();
  const T* out = gradients.out + token * out_width + head.query_column();
  const T* lse = gradients.lse + problem.lse_at(head.first_token, head.query_head) + queries.begin;
  T* dq = gradients.dqkv + token * width + head.query_column();
  alignas(64) T scores[kQueries * kKeys];
  alignas(64) T products[kQueries * kKeys];
  T delta[kQueries];
  for (i64 r = 0; r < num_queries; ++r) {
    const i64 first = r * out_width;
    delta[r] = lane_sum<T>(head_dim, [=](i64 j) { return dout[first + j] * out[first + j]; });
  }
  for_each_block(head.visible(queries.begin, queries.end), kKeys, [&](Range keys) {
    const i64 num_keys = keys.end - keys.begin;
    T* dkey = gradients.dqkv + (head.first_token + keys.begin) * width;
    head.score(queries, keys, scores);
    gemm_serial(false, true, num_queries, num_keys, head_dim, dout, out_width,
                head.rows(head.value_column(), keys.begin), width, false, products, kKeys);
    for (i64 r = 0; r < num_queries; ++r) {
      differentiate_row(scores + r * kKeys, products + r * kKeys, num_keys,
                        head.columns(queries.begin + r, keys), problem.scale, lse[r], delta[r]);
    }
    gemm_serial(true, false, num_keys, head_dim, num_queries, scores, kKeys, dout, out_width, true,
                dkey + head.value_column(), width);
    gemm_serial(true, false, num_keys, head_dim, num_queries, products, kKeys,
                head.rows(head.query_column(), queries.begin), width, true, dkey + head.key_column(), width);
    gemm_serial(false, false, num_queries, head_dim, num_keys, products, kKeys,
                head.rows(head.key_column(), keys.begin), width, true, dq, width);
  });
}

// All query heads of one key head of one sequence.
template <class T>
void backward_group(const AttentionProblem<T>& problem, i64 first_token, i64 kv_head,
                    const Gradients<T>& gradients) {
  const i64 group = problem.query_heads / problem.kv_heads;
  const Head<T> first{problem, first_token, kv_head * group};
  for (i64 i = 0; i < problem.sequence; ++i) {
    T* row = gradients.dqkv + (first_token + i) * problem.width();
    std::fill_n(row + first.query_column(), group * problem.head_dim, T{0});
    std::fill_n(row + first.key_column(), problem.head_dim, T{0});
    std::fill_n(row + first.value_column(), problem.head_dim, T{0});
  }
  for (i64 g = 0; g < group; ++g) {
    const Head<T> head{problem, first_token, kv_head * group + g};
    for_each_block({0, problem.sequence}, kQueries,
                   [&](Range queries) { backward_block(head, queries, gradients); });
  }
}

}  // namespace

template <class T>
void attention_forward(ThreadPool& pool, const AttentionProblem<T>& problem, T* out, T* lse) {
  const i64 blocks = ceil_div(problem.sequence, kQueries);
  pool.parallel_for(problem.num_sequences * problem.query_heads * blocks, [&](i64 task) {
    // The last, longest blocks of queries first: short tasks at the end level the load.
    const i64 block = blocks - 1 - task / (problem.num_sequences * problem.query_heads);
    const i64 rest = task % (problem.num_sequences * problem.query_heads);
    const Head<T> head{problem, rest / problem.query_heads * problem.sequence, rest % problem.query_heads};
    forward_block(head, {block * kQueries, std::min((block + 1) * kQueries, problem.sequence)}, out, lse);
  });
}

template <class T>
void attention_backward(ThreadPool& pool, const AttentionProblem<T>& problem, const T* dout, const T* out,
                        const T* lse, T* dqkv) {
  pool.parallel_for(problem.num_sequences * problem.kv_heads, [&](i64 task) {
    backward_group(problem, task / problem.kv_heads * problem.sequence, task % problem.kv_heads,
                   Gradients<T>{dout, out, lse, dqkv});
  });
}

template void attention_forward<float>(ThreadPool&, const AttentionProblem<float>&, float*, float*);
template void attention_forward<double>(ThreadPool&, const AttentionProblem<double>&, double*, double*);
template void attention_backward<float>(ThreadPool&, const AttentionProblem<float>&, const float*,
                                        const float*, const float*, float*);
template void attention_backward<double>(ThreadPool&, const AttentionProblem<double>&, const double*,
                                         const double*, const double*, double*);

}  // namespace wych::kernels
