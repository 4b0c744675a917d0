// Pictures of routing (report_experts.h). Layers that can be chosen have letters, a for the first: a token's
// class "b12" says that its first expert in the second of them is 12.
#include "train/report_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "io/png.h"
#include "train/html.h"
#include "train/printable.h"
#include "train/report_style.h"
#include "train/run_text.h"
#include "train/svg_chart.h"

namespace wych::train {
namespace {

constexpr i64 kMostNumbered = 16;     // experts whose numbers fit beside or above a picture
constexpr std::size_t kMostOpen = 8;  // layers shown without unfolding
constexpr std::size_t kMapStrips = 48;

char letter(std::size_t detail) { return static_cast<char>('a' + detail); }

// Colours by distance from the mean: index kSteps is the mean, 0 nothing at all, 2 kSteps twice the mean.
constexpr int kSteps = 12;
std::array<io::Rgba, 2 * kSteps + 1> load_palette() {
  std::array<io::Rgba, 2 * kSteps + 1> palette;
  for (int i = 0; i <= 2 * kSteps; ++i) {
    io::Rgba& color = palette[static_cast<std::size_t>(i)];
    color = i < kSteps ? kBelowMean : kAboveMean;
    color.alpha = static_cast<u8>(255 * std::abs(i - kSteps) / kSteps);
  }
  return palette;
}

u8 load_color(double relative) {
  return static_cast<u8>(std::lround(kSteps * std::clamp(relative, 0.0, 2.0)));
}

// `loads[row][column]` relative to the mean, as an <img>.
std::string load_image(const std::vector<std::vector<double>>& loads, const std::string& alt) {
  std::vector<u8> pixels;
  for (const std::vector<double>& row : loads) {
    std::transform(row.begin(), row.end(), std::back_inserter(pixels), load_color);
  }
  const std::string png = io::encode_png(std::ssize(loads[0]), std::ssize(loads), pixels, load_palette());
  return fmt::format("<img src=\"data:image/png;base64,{}\" alt=\"{}\"/>\n", base64(png), html_escape(alt));
}

// Loads of `experts` relative to their mean; all 1 where nothing was routed.
std::vector<double> relative_loads(const std::vector<i64>& counts, std::size_t experts) {
  const auto sum = static_cast<double>(std::accumulate(counts.begin(), counts.end(), i64{0}));
  std::vector<double> loads(experts, sum > 0 ? 0.0 : 1.0);
  for (std::size_t expert = 0; sum > 0 && expert < std::min(experts, counts.size()); ++expert) {
    loads[expert] = static_cast<double>(counts[expert]) * static_cast<double>(experts) / sum;
  }
  return loads;
}

std::string expert_labels(std::size_t experts, const std::vector<i64>& dead) {
  constexpr std::ptrdiff_t kMostDead = 6;  // beyond, labels would cover each other
  std::string html;
  const auto height = 100.0 / static_cast<double>(experts);
  for (std::size_t expert = 0; expert < experts; ++expert) {
    const auto found = std::find(dead.begin(), dead.end(), static_cast<i64>(expert));
    const bool is_dead = found != dead.end();
    const bool is_edge = expert == 0 || expert + 1 == experts;
    if (static_cast<i64>(experts) <= kMostNumbered || is_edge ||
        (is_dead && found - dead.begin() < kMostDead)) {
      html += fmt::format(R"(<span class="y{}" style="top:{:.2f}%">{}{}</span>)", is_dead ? " dead" : "",
                          (static_cast<double>(expert) + 0.5) * height, is_dead ? "dead " : "", expert);
    }
  }
  return html;
}

// "experts 3, 7 and 12 more"
std::string expert_list(const std::vector<i64>& experts) {
  constexpr std::size_t kMostNamed = 12;
  const std::size_t named = std::min(experts.size(), kMostNamed);
  std::string text = experts.size() == 1 ? "expert " : "experts ";
  for (std::size_t i = 0; i < named; ++i) {
    text += fmt::format("{}{}", i > 0 ? ", " : "", experts[i]);
  }
  return text + (experts.size() > named ? fmt::format(" and {} more", experts.size() - named) : "");
}

// One layer over the run.
struct LayerMap {
  i64 block = 0;
  std::vector<const LoadSpan*> spans;
  std::vector<std::vector<double>> loads;  // [experts][spans]
  std::vector<i64> dead;                   // without routes in the last steps
  double imbalance = 0;                    // of the last steps
};

LayerMap layer_map(const RunRecord& record, const LayerLoad& last) {
  LayerMap map;
  map.block = last.block;
  const std::size_t experts = last.relative.size();
  map.loads.resize(experts);
  for (const LoadSpan& span : record.load_history) {
    const auto found = span.counts.find(last.block);
    if (found == span.counts.end()) {
      continue;
    }
    map.spans.push_back(&span);
    const std::vector<double> loads = relative_loads(found->second, experts);
    for (std::size_t expert = 0; expert < experts; ++expert) {
      map.loads[expert].push_back(loads[expert]);
    }
  }
  for (std::size_t expert = 0; expert < experts; ++expert) {
    if (last.relative[expert] == 0) {
      map.dead.push_back(static_cast<i64>(expert));
    }
  }
  map.imbalance = *std::max_element(last.relative.begin(), last.relative.end());
  return map;
}

// What strips over the map say: the busiest and the idlest expert of their steps.
std::vector<std::string> map_details(const LayerMap& map) {
  std::vector<std::string> texts(std::min(map.spans.size(), kMapStrips));
  for (std::size_t strip = 0; strip < texts.size(); ++strip) {
    const std::size_t column = (2 * strip + 1) * map.spans.size() / (2 * texts.size());
    const auto less = [column](const auto& a, const auto& b) { return a[column] < b[column]; };
    const auto [least, most] = std::minmax_element(map.loads.begin(), map.loads.end(), less);
    const LoadSpan& span = *map.spans[column];
    const std::string steps =
        span.first_step == span.last_step
            ? fmt::format("step {}", grouped_digits(span.first_step))
            : fmt::format("steps {} to {}", grouped_digits(span.first_step), grouped_digits(span.last_step));
    texts[strip] =
        fmt::format("{}\nmost: expert {}, {:.2f} x mean\nleast: expert {}, {:.2f} x mean", steps,
                    most - map.loads.begin(), (*most)[column], least - map.loads.begin(), (*least)[column]);
  }
  return texts;
}

std::string last_steps(i64 steps) {
  return steps == 1 ? "the last step" : fmt::format("the last {} steps", steps);
}

std::string map_figure(const LayerMap& map, i64 load_steps) {
  constexpr std::size_t kPixelsPerExpert = 14;
  const std::size_t pixels = std::clamp<std::size_t>(kPixelsPerExpert * map.loads.size(), 56, 224);
  const std::string last = last_steps(load_steps);
  std::string html =
      fmt::format("<figure>\n<figcaption><b>layer {}</b><span>busiest expert {:.2f} x mean in {}</span>",
                  map.block, map.imbalance, last);
  if (!map.dead.empty()) {
    html += fmt::format("<span class=\"warn\">dead: {}</span>", expert_list(map.dead));
  }
  html += fmt::format("</figcaption>\n<div class=\"plot map\" style=\"height:{}px\">\n", pixels);
  html +=
      load_image(map.loads, fmt::format("Load of {} experts of layer {} over the run: busiest {:.2f} x "
                                        "mean in {}, {} without routes.",
                                        map.loads.size(), map.block, map.imbalance, last, map.dead.size()));
  html += expert_labels(map.loads.size(), map.dead);
  html +=
      fmt::format(R"(<span class="x first">step {}</span><span class="x last">{}</span>)",
                  grouped_digits(map.spans.front()->first_step), grouped_digits(map.spans.back()->last_step));
  return html + "\n" + detail_strips(fmt::format("map{}", map.block), map_details(map)) +
         "</div>\n</figure>\n";
}

// Figures in a grid; those beyond the first few folded away.
std::string figures(const std::vector<std::string>& all, std::string_view columns) {
  const auto grid = [&](std::size_t begin, std::size_t end) {
    std::string html = fmt::format("<div class=\"{} gap\">\n", columns);
    for (std::size_t i = begin; i < end; ++i) {
      html += all[i];
    }
    return html + "</div>\n";
  };
  if (all.empty()) {
    return "";
  }
  std::string html = grid(0, std::min(all.size(), kMostOpen));
  if (all.size() > kMostOpen) {
    html += fmt::format("<details><summary>{} more layers</summary>\n{}</details>\n", all.size() - kMostOpen,
                        grid(kMostOpen, all.size()));
  }
  return html;
}

constexpr std::string_view kScale =
    R"(<p><span class="scale">no routes <i></i> 2 x mean or more</span></p>
)";

std::string matrix_table(const std::vector<std::string>& domains,
                         const std::vector<std::vector<double>>& loads) {
  std::string html = "<div class=\"scroll\"><table class=\"matrix\">\n<tr><th>expert</th>";
  for (std::size_t expert = 0; expert < loads[0].size(); ++expert) {
    html += fmt::format("<th>{}</th>", expert);
  }
  html += "</tr>\n";
  for (std::size_t domain = 0; domain < domains.size(); ++domain) {
    html += fmt::format("<tr><th>{}</th>", html_escape(printable(domains[domain], LineBreaks::kEscape)));
    for (const double load : loads[domain]) {
      html +=
          fmt::format(R"(<td class="{}" style="--a:{:.2f}">{:.0f}%</td>)", load < 1 ? "below" : "above",
                      std::min(1.0, std::abs(load - 1)), 100 * load / static_cast<double>(loads[0].size()));
    }
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

std::string matrix_image(const std::vector<std::string>& domains,
                         const std::vector<std::vector<double>>& loads, i64 block) {
  std::string html = fmt::format("<div class=\"plot map\" style=\"height:{}px\">\n",
                                 std::clamp<std::size_t>(24 * domains.size(), 48, 480));
  html += load_image(loads,
                     fmt::format("Share of {} domains' routes by expert, layer {}.", domains.size(), block));
  std::vector<std::string> details;
  for (std::size_t expert = 0; expert < loads[0].size(); ++expert) {
    std::string& text = details.emplace_back(fmt::format("expert {}", expert));
    for (std::size_t domain = 0; domain < domains.size(); ++domain) {
      text += fmt::format("\n{} {:.2f}%", printable(domains[domain], LineBreaks::kEscape),
                          100 * loads[domain][expert] / static_cast<double>(loads[0].size()));
    }
  }
  for (std::size_t domain = 0; domain < domains.size(); ++domain) {
    html += fmt::format(R"(<span class="y" style="top:{:.2f}%">{}</span>)",
                        100 * (static_cast<double>(domain) + 0.5) / static_cast<double>(domains.size()),
                        html_escape(printable(domains[domain], LineBreaks::kEscape)));
  }
  html += fmt::format(R"(<span class="x first">expert 0</span><span class="x last">{}</span>)",
                      loads[0].size() - 1);
  return html + "\n" + detail_strips(fmt::format("domains{}", block), details) + "</div>\n";
}

std::string favourite_list(const RoutingRecord& routing, std::size_t detail, std::size_t begin,
                           std::size_t end) {
  std::string html = fmt::format("<ul class=\"words only {}\">\n", letter(detail));
  for (std::size_t expert = begin; expert < end; ++expert) {
    const std::vector<std::string>& tokens = routing.favourites[detail][expert];
    html += fmt::format("<li><span class=\"chip {}{}\">{}</span><p>", letter(detail), expert, expert);
    for (const std::string& token : tokens) {
      html += fmt::format("<code>{}</code> ", html_escape(printable(token, LineBreaks::kEscape)));
    }
    html += tokens.empty() ? "nothing in particular</p></li>\n" : "</p></li>\n";
  }
  return html + "</ul>\n";
}

std::string favourites(const RoutingRecord& routing, std::size_t detail) {
  const std::size_t experts = routing.favourites[detail].size();
  const std::size_t open = std::min<std::size_t>(experts, 2 * kMostNumbered);
  std::string html = favourite_list(routing, detail, 0, open);
  if (open < experts) {
    html += fmt::format("<details class=\"only {}\"><summary>{} more experts</summary>\n{}</details>\n",
                        letter(detail), experts - open, favourite_list(routing, detail, open, experts));
  }
  return html;
}

// "5 61% · 1 39%"
std::string route_detail(const RoutedText::Layer& layer, std::size_t token, std::size_t top_k) {
  std::string text;
  for (std::size_t slot = token * top_k; slot < (token + 1) * top_k; ++slot) {
    text += fmt::format("{}{} {:.0f}%", text.empty() ? "" : " \u00b7 ", layer.experts[slot],
                        100 * layer.weights[slot]);
  }
  return text;
}

// A token's text: line breaks get a sign of their own, so that what is tinted can be seen.
std::string token_text(const std::string& token) {
  std::string html;
  for (const char c : printable(token, LineBreaks::kKeep)) {
    html += c == '\n' ? "\u21b5\n" : html_escape(std::string(1, c));
  }
  return html;
}

std::string tokens_html(const RoutedText& text, std::size_t top_k) {
  std::string html = "<p class=\"tokens\">";
  for (std::size_t token = 0; token < text.tokens.size(); ++token) {
    std::string classes;
    std::string details;
    for (std::size_t detail = 0; detail < text.layers.size(); ++detail) {
      const i64 first = text.layers[detail].experts[token * top_k];
      classes += fmt::format("{}{}{}", detail > 0 ? " " : "", letter(detail), first);
      details +=
          fmt::format(" data-{}=\"{}\"", letter(detail), route_detail(text.layers[detail], token, top_k));
    }
    html += fmt::format("<i class=\"{}{}\"{}>{}</i>", classes,
                        static_cast<i64>(token) < text.num_given ? " given" : "", details,
                        token_text(text.tokens[token]));
  }
  return html + "</p>\n";
}

// "first experts: 5 (31%), 1 (22%), 0 (12%)": the tints in words.
std::string mix_html(const RoutedText& text, std::size_t detail, const RoutingRecord& routing) {
  std::vector<std::pair<i64, i64>> counts(static_cast<std::size_t>(routing.experts));
  for (std::size_t token = 0; token < text.tokens.size(); ++token) {
    const i64 expert = text.layers[detail].experts[token * static_cast<std::size_t>(routing.top_k)];
    --counts[static_cast<std::size_t>(expert)].first;
    counts[static_cast<std::size_t>(expert)].second = expert;
  }
  std::sort(counts.begin(), counts.end());
  constexpr std::size_t kMostNamed = 4;
  std::string html = fmt::format("<p class=\"mix only {}\">first choice most often:", letter(detail));
  for (std::size_t i = 0; i < std::min(counts.size(), kMostNamed) && counts[i].first < 0; ++i) {
    html +=
        fmt::format("{} <span class=\"chip {}{}\">{}</span> {:.0f}%", i > 0 ? "," : "", letter(detail),
                    counts[i].second, counts[i].second,
                    -100.0 * static_cast<double>(counts[i].first) / static_cast<double>(text.tokens.size()));
  }
  return html + "</p>\n";
}

}  // namespace

std::string expert_rules(const RoutingRecord& routing) {
  std::array<std::string, kExpertColors> colors;
  std::array<std::string, kExpertLooks / kExpertColors> lines;
  std::string css;
  for (std::size_t detail = 0; detail < routing.detailed.size(); ++detail) {
    const std::string chosen = fmt::format("#L{}:checked~* ", letter(detail));
    for (i64 expert = 0; expert < routing.experts; ++expert) {
      const std::string selector = fmt::format("{}.{}{}", chosen, letter(detail), expert);
      std::string& color = colors[static_cast<std::size_t>(expert % kExpertColors)];
      color += (color.empty() ? "" : ",") + selector;
      std::string& line = lines[static_cast<std::size_t>(expert / kExpertColors) % lines.size()];
      line += (line.empty() ? "" : ",") + selector;
    }
    css += fmt::format("#L{0}:checked~.{0},#L{0}:checked~* .{0}{{display:revert}}\n", letter(detail));
    css += fmt::format("#L{0}:checked~ul.{0},#L{0}:checked~* ul.{0}{{display:grid}}\n", letter(detail));
    css += fmt::format("{}i:hover::after{{content:\"layer {}: expert \" attr(data-{})}}\n", chosen,
                       routing.blocks[static_cast<std::size_t>(routing.detailed[detail])], letter(detail));
    css += fmt::format(
        "#L{0}:checked~.tabs "
        "[for=L{0}]{{background:var(--text);border-color:var(--text);color:var(--page)}}\n"
        "#L{0}:focus-visible~.tabs [for=L{0}]{{outline:2px solid var(--c0);outline-offset:2px}}\n",
        letter(detail));
  }
  for (std::size_t color = 0; color < colors.size(); ++color) {
    css += colors[color].empty() ? "" : fmt::format("{}{{--t:var(--e{})}}\n", colors[color], color);
  }
  constexpr std::array<std::string_view, kExpertLooks / kExpertColors> kLines = {"solid", "dashed", "dotted",
                                                                                 "double"};
  for (std::size_t line = 1; line < lines.size(); ++line) {
    css += lines[line].empty() ? "" : fmt::format("{}{{--s:{}}}\n", lines[line], kLines[line]);
  }
  return css;
}

std::string load_maps(const RunRecord& record) {
  std::vector<std::string> all;
  i64 num_dead = 0;
  for (const LayerLoad& last : record.loads) {
    const LayerMap map = layer_map(record, last);
    num_dead += std::ssize(map.dead);
    if (!map.spans.empty()) {
      all.push_back(map_figure(map, record.load_steps));
    }
  }
  if (all.empty()) {
    return "";
  }
  const std::string when = last_steps(record.load_steps);
  const std::string dead = num_dead == 0 ? fmt::format("No expert is dead: each had routes in {}.", when)
                                         : fmt::format("<b>{} expert{} dead</b>: without a route in {}.",
                                                       num_dead, num_dead == 1 ? " is" : "s are", when);
  return fmt::format(
             "<p>Each row is an expert, each column a moment of the run; blank is the mean load. {}</p>\n",
             dead) +
         std::string(kScale) + figures(all, all.size() > 4 ? "grid3" : "grid2");
}

std::string domain_matrices(const RoutingRecord& routing) {
  if (routing.empty() || routing.domains.empty()) {
    return "";
  }
  std::vector<std::string> all;
  double largest = 0;
  const double bound = std::log2(static_cast<double>(routing.domains.size()));
  for (std::size_t layer = 0; layer < routing.blocks.size(); ++layer) {
    std::vector<std::vector<double>> loads;
    for (const std::vector<i64>& counts : routing.counts[layer]) {
      loads.push_back(relative_loads(counts, static_cast<std::size_t>(routing.experts)));
    }
    const double bits = domain_information(routing.counts[layer]);
    largest = std::max(largest, bits);
    all.push_back(fmt::format(
        "<figure>\n<figcaption><b>layer {}</b><span>{:.3f} of {:.3g} bits</span></figcaption>\n{}</figure>\n",
        routing.blocks[layer], bits, bound,
        routing.experts <= kMostNumbered ? matrix_table(routing.domains, loads)
                                         : matrix_image(routing.domains, loads, routing.blocks[layer])));
  }
  const double share = bound > 0 ? largest / bound : 0;
  const std::string_view answer = share < 0.02  ? "Hardly"
                                  : share < 0.1 ? "A little"
                                  : share < 0.5 ? "Partly"
                                                : "Yes";
  const std::string measure = fmt::format(
      "<p><b>{}.</b> Of each domain's held-out tokens, the share of routes that each expert got. Pick a "
      "domain "
      "at random, then one of its routes: the expert tells so many bits about the domain (their mutual "
      "information), 0 if all domains use experts alike, {:.3g} if no two share one.</p>\n",
      answer, bound);
  return measure + std::string(kScale) + figures(all, all.size() > 4 ? "grid3" : "grid2");
}

std::string token_routes(const RoutingRecord& routing) {
  if (routing.texts.empty()) {
    return "";
  }
  std::string html = "<div class=\"layers\">\n";
  std::string tabs = "<div class=\"tabs\">";
  for (std::size_t detail = 0; detail < routing.detailed.size(); ++detail) {
    const i64 block = routing.blocks[static_cast<std::size_t>(routing.detailed[detail])];
    html += fmt::format("<input class=\"switch\" type=\"radio\" name=\"layer\" id=\"L{}\"{}/>",
                        letter(detail), detail == routing.detailed.size() / 2 ? " checked=\"checked\"" : "");
    tabs += fmt::format("<label for=\"L{}\">layer {}</label>", letter(detail), block);
  }
  html += "\n" + tabs + "</div>\n<h3>What each expert is chosen for</h3>\n";
  for (std::size_t detail = 0; detail < routing.detailed.size(); ++detail) {
    html += fmt::format(
        "<p class=\"only {}\">On held-out text the tokens that say most about an expert, most telling first. "
        "A "
        "token tells {:.2f} of {:.3g} bits about the experts it is sent to.</p>\n",
        letter(detail), routing.token_information[detail], std::log2(static_cast<double>(routing.experts)));
    html += favourites(routing, detail);
  }
  html +=
      "<h3>Texts by first choice</h3>\n<p>A token has the colour of the expert with the largest weight; the "
      "prompt is bold. "
      "Pointing at it, or tapping, shows all of its experts and their weights.</p>\n";
  html += "<div class=\"grid2 gap texts\">\n";
  for (const RoutedText& text : routing.texts) {
    html += fmt::format("<div class=\"text\"><h3>{}</h3>\n{}",
                        html_escape(printable(text.title, LineBreaks::kEscape)),
                        tokens_html(text, static_cast<std::size_t>(routing.top_k)));
    for (std::size_t detail = 0; detail < text.layers.size(); ++detail) {
      html += mix_html(text, detail, routing);
    }
    html += "</div>\n";
  }
  return html + "</div>\n</div>\n";
}

}  // namespace wych::train
