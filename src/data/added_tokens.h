// Tokens with a text of their own, cut out of a text before anything else happens to it: end-of-text,
// markers, runs of spaces. At each position the longest that fits is taken, from left to right.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/types.h"

namespace wych::data {

struct AddedToken {
  std::string content;  // not empty
  i32 id = 0;
  bool special = false;      // a control token: text that merely spells it may be left alone (SpecialText)
  bool normalized = false;   // looked for in the normalised text, where its content is normalised too
  bool single_word = false;  // only if no word character is next to it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space behind it
};

// What text that spells a special token becomes.
enum class SpecialText : u8 {
  kText,   // ordinary tokens: a document cannot end itself
  kToken,  // the special token
};

// Finds the contents of a fixed set of tokens. Time O(bytes x longest content), in practice one look per
// byte.
class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  // Calls, in order, on_text for what is between tokens (never empty) and on_token for each token found.
  void split(std::string_view text, SpecialText special, FunctionRef<void(std::string_view)> on_text,
             FunctionRef<void(i32)> on_token) const;

  [[nodiscard]] bool is_empty() const { return tokens_.empty(); }

 private:
  // A node of a trie of the contents; children of a node are a list of siblings.
  struct Node {
    char byte = 0;
    i32 token = -1;  // index of the token that ends here, or -1
    i32 first_child = -1;
    i32 next_sibling = -1;
  };
  [[nodiscard]] i32 child(i32 node, char byte) const;
  // Index of the longest token at text[position], or -1.
  [[nodiscard]] i32 longest_at(std::string_view text, std::size_t position) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;             // [0] is the root
  std::array<i32, 256> first_nodes_{};  // the root's children by byte, -1 if none
};

}  // namespace wych::data
