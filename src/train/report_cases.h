// For the tests of the report: what is wrong with a page, and a small routing record.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "train/routing.h"

namespace wych::train {

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

inline int count(std::string_view text, std::string_view part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

// What is wrong with the markup, or "". Strict: every tag closed in order or by itself, attributes in double
// quotes, no bare ampersand.
inline std::string markup_fault(std::string_view html) {
  std::vector<std::string> open;
  for (std::size_t at = 0; at < html.size(); ++at) {
    if (html[at] == '&') {
      const std::string_view entity = html.substr(at, html.find(';', at) - at);
      if (entity != "&amp" && entity != "&lt" && entity != "&gt" && entity != "&quot" && entity != "&#39") {
        return "bare ampersand before " + std::string(html.substr(at, 20));
      }
    }
    if (html[at] != '<' || html.substr(at).starts_with("<!DOCTYPE html>")) {
      continue;
    }
    std::size_t end = at;
    for (bool quoted = false; end < html.size() && (quoted || html[end] != '>'); ++end) {
      quoted = quoted != (html[end] == '"');
    }
    const std::string_view tag = html.substr(at + 1, end - at - 1);
    const std::string name(tag.substr(0, tag.find_first_of(" /\n", 1)));
    if (name.empty() || end == html.size()) {
      return "a tag without end: " + std::string(tag.substr(0, 20));
    }
    if (name[0] == '/') {
      if (open.empty() || "/" + open.back() != name) {
        return "<" + name + "> closes " + (open.empty() ? "nothing" : open.back());
      }
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    at = end;
  }
  return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

// Base64 is any text at all.
inline std::string without_pictures(std::string html) {
  constexpr std::string_view kBegin = "base64,";
  for (std::size_t at = html.find(kBegin); at != std::string::npos; at = html.find(kBegin, at)) {
    at += kBegin.size();
    html.erase(at, html.find('"', at) - at);
  }
  return html;
}

// Two layers of four experts on two domains: in layer 1 the domains share no expert.
inline RoutingRecord small_routing() {
  RoutingRecord routing;
  routing.step = 60;
  routing.experts = 4;
  routing.top_k = 2;
  routing.domains = {"<c>", "d"};
  routing.blocks = {0, 1};
  routing.detailed = {0, 1};
  routing.counts = {{{5, 5, 5, 5}, {10, 10, 10, 10}}, {{10, 10, 0, 0}, {0, 0, 30, 10}}};
  routing.favourites = {{{"a"}, {"<i>"}, {}, {" the", "\n"}}, {{}, {}, {}, {}}};
  routing.token_information = {1.25, 0.5};
  RoutedText text{.title = "what & why", .num_given = 1, .tokens = {"<b>", "\n", "\x1b&"}, .layers = {}};
  text.layers.push_back({{3, 0, 1, 2, 0, 1}, {0.75, 0.25, 0.6, 0.4, 0.5, 0.5}});
  text.layers.push_back({{0, 1, 0, 1, 2, 3}, {0.9, 0.1, 0.8, 0.2, 1, 0}});
  routing.texts.push_back(text);
  return routing;
}

}  // namespace wych::train
