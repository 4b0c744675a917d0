#include "data/added_tokens.h"

#include <algorithm>

#include "base/check.h"
#include "data/unicode.h"

namespace wych::data {
namespace {

bool is_space_at(std::string_view text, std::size_t position) {
  return (character_at(text, position).kind & kSpaceKind) != 0;
}

bool is_word_at(std::string_view text, std::size_t position) {
  const CodePoint c = code_point_at(text, position);
  return c.is_valid && is_word_character(c.value);
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  first_nodes_.fill(-1);
  nodes_.emplace_back();
  for (std::size_t index = 0; index < tokens_.size(); ++index) {
    WYCH_CHECK(!tokens_[index].content.empty(), "added token {} is empty", tokens_[index].id);
    i32 node = 0;
    for (const char byte : tokens_[index].content) {
      i32 next = child(node, byte);
      if (next < 0) {
        next = static_cast<i32>(nodes_.size());
        const i32 sibling = nodes_[static_cast<std::size_t>(node)].first_child;
        nodes_[static_cast<std::size_t>(node)].first_child = next;
        nodes_.push_back({byte, -1, -1, sibling});
      }
      node = next;
    }
    nodes_[static_cast<std::size_t>(node)].token = static_cast<i32>(index);
  }
  for (i32 node = nodes_[0].first_child; node >= 0;
       node = nodes_[static_cast<std::size_t>(node)].next_sibling) {
    first_nodes_[static_cast<unsigned char>(nodes_[static_cast<std::size_t>(node)].byte)] = node;
  }
}

i32 AddedTokenMatcher::child(i32 node, char byte) const {
  i32 next = nodes_[static_cast<std::size_t>(node)].first_child;
  while (next >= 0 && nodes_[static_cast<std::size_t>(next)].byte != byte) {
    next = nodes_[static_cast<std::size_t>(next)].next_sibling;
  }
  return next;
}

i32 AddedTokenMatcher::longest_at(std::string_view text, std::size_t position) const {
  i32 longest = -1;
  i32 node = first_nodes_[static_cast<unsigned char>(text[position])];
  while (node >= 0) {
    if (const i32 token = nodes_[static_cast<std::size_t>(node)].token; token >= 0) {
      longest = token;
    }
    ++position;
    node = position < text.size() ? child(node, text[position]) : -1;
  }
  return longest;
}

void AddedTokenMatcher::split(std::string_view text, SpecialText special,
                              FunctionRef<void(std::string_view)> on_text,
                              FunctionRef<void(i32)> on_token) const {
  std::size_t done = 0;  // text before has been handed out
  for (std::size_t at = 0; at < text.size() && !tokens_.empty();) {
    const i32 found = longest_at(text, at);
    if (found < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(found)];
    std::size_t begin = at;
    std::size_t end = at + token.content.size();
    at = end;  // a match that is not wanted still hides those within it
    if (token.special && special == SpecialText::kText) {
      continue;
    }
    if (token.single_word && ((begin > 0 && is_word_at(text, last_character(text, begin))) ||
                              (end < text.size() && is_word_at(text, end)))) {
      continue;
    }
    while (token.lstrip && begin > done && is_space_at(text, last_character(text, begin))) {
      begin = last_character(text, begin);
    }
    while (token.rstrip && end < text.size() && is_space_at(text, end)) {
      end += character_at(text, end).length;
    }
    begin = std::max(begin, done);
    if (begin > done) {
      on_text(text.substr(done, begin - done));
    }
    on_token(token.id);
    done = std::max(done, end);
    at = done;
  }
  if (done < text.size()) {
    on_text(text.substr(done));
  }
}

}  // namespace wych::data
