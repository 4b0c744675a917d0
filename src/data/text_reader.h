// Text files as pieces ready to encode, a bounded part at a time. A file of JSON lines (.jsonl, .json,
// .ndjson; also with .gz or .zst behind) has a document per line; any other file is one document, cut where
// neither side of the cut changes how the other is tokenized: after a line before a word, or between two
// words, so that the ids are those of the whole for every pattern of pattern.h. Where text is cut depends on
// the text alone.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/expected.h"
#include "base/types.h"

namespace wych::data {

enum class TextFormat : u8 { kByName, kPlain, kJsonLines };

struct TextOptions {
  TextFormat format = TextFormat::kByName;
  std::string text_key = "text";  // of the objects of JSON lines
  // Bytes that are not UTF-8 are an Error with file and byte offset; or kept as they are (plain text), or
  // their line is left out (JSON lines), and counted.
  bool keep_invalid = false;
  i64 section_bytes = 0;     // > 0: plain text comes in units of about this size
  bool cut_at_lines = true;  // false: only between words, for tokenizers that put a space before a text
};

// A piece of a document.
struct TextPiece {
  std::string text;           // never empty
  bool begins_unit = true;    // of what is held out or not as a whole: a document, or a section of one
  bool ends_document = true;  // the next piece is another document's
};

struct TextBatch {
  std::vector<TextPiece> pieces;
  i64 invalid = 0;      // places of plain text that are not UTF-8, lines of JSON left out
  i64 empty = 0;        // documents without text, left out
  i64 bytes_read = 0;   // of the files so far, packed as they are
  bool at_end = false;  // no more pieces follow
};

// Reads files one after the other, on the caller's thread.
class TextReader {
 public:
  // Errors (kData): a file that is missing.
  static Expected<TextReader> open(std::vector<std::string> paths, const TextOptions& options);
  TextReader(TextReader&&) noexcept;
  TextReader& operator=(TextReader&&) noexcept;
  ~TextReader();

  // About `bytes` of text more. Errors (kData) name file and byte offset, or file and line.
  Expected<TextBatch> next(i64 bytes);
  // Sizes of all files.
  [[nodiscard]] i64 total_bytes() const;

 private:
  struct State;
  explicit TextReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The largest place in (text.size() / 2, text.size()) at which `text` may be cut (above), behind a line if
// there is one and `at_lines`; else 0.
std::size_t find_cut(std::string_view text, bool at_lines = true);
// The offset of the first byte that is not part of well-formed UTF-8; npos if all of it is.
std::size_t find_invalid_utf8(std::string_view text);

}  // namespace wych::data
