// From the three books' text to documents. Each parser keeps the wording and the line breaks and drops page
// furniture only; the reader of the files is corpus.cc.
#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "data/corpus.h"

namespace wych::data {
namespace {

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string_view without_indent(std::string_view line, std::size_t columns) {
  const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
  return line.substr(std::min(indent, columns));
}

// Without blank lines at both ends and with one newline at the end; empty if there is nothing else.
std::string trimmed(std::string_view text) {
  const std::size_t last = text.find_last_not_of(" \n");
  if (last == std::string_view::npos) {
    return {};
  }
  const std::size_t begin = text.find_first_not_of('\n');
  return std::string(text.substr(begin, last + 1 - begin)) + "\n";
}

// Collects lines into documents.
class Documents {
 public:
  void add_line(std::string_view line) { text_.append(line).push_back('\n'); }
  void finish_document() {
    if (std::string document = trimmed(text_); !document.empty()) {
      documents_.push_back(std::move(document));
    }
    text_.clear();
  }
  std::vector<std::string> take() {
    finish_document();
    return std::move(documents_);
  }

 private:
  std::string text_;
  std::vector<std::string> documents_;
};

// Digits of dictd's index: A-Z a-z 0-9 + /, the most significant first; -1 if `text` has any other.
i64 base64_number(std::string_view text) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  i64 value = 0;
  for (const char digit : text) {
    const std::size_t position = kDigits.find(digit);
    if (position == std::string_view::npos || value >= (i64{1} << 40U)) {
      return -1;
    }
    value = value * 64 + static_cast<i64>(position);
  }
  return text.empty() ? -1 : value;
}

bool is_alphanumeric(char byte) { return std::isalnum(static_cast<unsigned char>(byte)) != 0; }

// How a line of the Jargon File counts; `after_blank`: the line before it is blank.
enum class JargonLine { kText, kEntry, kTitle, kContents, kFurniture };

JargonLine classify(std::string_view line, bool after_blank) {
  constexpr std::string_view kEntryMark = "   :";  // "   :hacker: n."
  if (line.starts_with(kEntryMark) && line.find(':', kEntryMark.size()) != std::string_view::npos) {
    return JargonLine::kEntry;
  }
  if (line == "   Table of Contents") {
    return JargonLine::kContents;
  }
  const std::string_view words = without_indent(line, line.size());
  const std::size_t indent = line.size() - words.size();
  const bool is_letter =
      indent == 2 && words.size() == 1 && is_alphanumeric(words[0]);  // "  A", head of its list
  const bool is_part = indent > 20 && words.starts_with("Part ");
  if (line == "Glossary" || is_letter || is_part) {
    return JargonLine::kFurniture;
  }
  return after_blank && indent == 0 && !line.empty() && is_alphanumeric(line[0]) ? JargonLine::kTitle
                                                                                 : JargonLine::kText;
}

}  // namespace

std::vector<std::string> split_bible(std::string_view text) {
  Documents documents;
  for (const std::string_view line : split_lines(text)) {
    if (!line.empty() && line[0] != ' ') {  // "Genesis 1"
      documents.finish_document();
    }
    documents.add_line(without_indent(line, 2));
  }
  return documents.take();
}

std::vector<std::string> split_jargon(std::string_view text) {
  const std::vector<std::string_view> lines = split_lines(text);
  Documents documents;
  // kContents: a list of one-line paragraphs, ended by the first longer one. kSkip: up to the next head.
  enum class Mode { kText, kContents, kSkip } mode = Mode::kSkip;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    switch (classify(lines[i], i == 0 || lines[i - 1].empty())) {
      case JargonLine::kEntry:
      case JargonLine::kTitle:
        documents.finish_document();
        mode = Mode::kText;
        break;
      case JargonLine::kContents:
        mode = mode == Mode::kSkip ? Mode::kSkip : Mode::kContents;
        break;
      case JargonLine::kFurniture:
        mode = Mode::kSkip;
        break;
      case JargonLine::kText: {
        const bool is_longer = !lines[i].empty() && i + 1 < lines.size() && !lines[i + 1].empty();
        if (mode == Mode::kContents && is_longer) {
          mode = Mode::kText;
        }
        break;
      }
    }
    if (mode == Mode::kText) {
      documents.add_line(without_indent(lines[i], 3));
    }
  }
  return documents.take();
}

std::vector<std::string> split_dictionary(std::string_view text, std::string_view index) {
  std::set<std::pair<u64, u64>> entries;  // offset, length: in order of place; headwords may share an entry
  for (const std::string_view line : split_lines(index)) {
    const std::size_t first = line.find('\t');
    const std::size_t second = first == std::string_view::npos ? first : line.find('\t', first + 1);
    if (second == std::string_view::npos) {
      return {};
    }
    const i64 offset = base64_number(line.substr(first + 1, second - first - 1));
    const i64 length = base64_number(line.substr(second + 1));
    if (offset < 0 || length < 0 || offset + length > static_cast<i64>(text.size())) {
      return {};
    }
    if (!line.starts_with("00")) {  // "00database...": about the database
      entries.emplace(offset, length);
    }
  }
  Documents documents;
  for (const auto& [offset, length] : entries) {
    documents.add_line(text.substr(offset, length));
    documents.finish_document();
  }
  return documents.take();
}

}  // namespace wych::data
