// Causal attention on the CPU in blocks of queries and keys with an online softmax; ops/attention.h states
// the maths and who sees whom. One task owns one block of queries of one head (forward), or one sequence and
// one key head (backward), and visits blocks in a fixed order, so results do not depend on the threads.
#pragma once

#include "base/thread_pool.h"
#include "base/types.h"

namespace wych::kernels {

template <class T>
struct AttentionProblem {
  i64 num_sequences;
  i64 sequence;  // S
  i64 query_heads;
  i64 kv_heads;
  i64 head_dim;
  i64 window;  // 0: unlimited
  T scale;
  const T* qkv;               // [num_sequences S, width]
  const i32* document_start;  // [num_sequences S], or null: no documents

  [[nodiscard]] i64 width() const { return (query_heads + 2 * kv_heads) * head_dim; }
  [[nodiscard]] i64 out_width() const { return query_heads * head_dim; }
  // Where a head of a sequence lies in lse.
  [[nodiscard]] i64 lse_at(i64 first_token, i64 head) const {
    return first_token * query_heads + head * sequence;
  }
};

// Writes out[tokens, query_heads head_dim] and lse[num_sequences, query_heads, S]. Up to 110 KiB of stack.
template <class T>
void attention_forward(ThreadPool& pool, const AttentionProblem<T>& problem, T* out, T* lse);

// Writes dqkv[tokens, width]. Up to 180 KiB of stack.
template <class T>
void attention_backward(ThreadPool& pool, const AttentionProblem<T>& problem, const T* dout, const T* out,
                        const T* lse, T* dqkv);

}  // namespace wych::kernels
