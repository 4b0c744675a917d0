// Blocks of about a MiB are cut from the unpacked bytes; each is checked and parsed by itself.
#include "data/text_reader.h"

#include <fmt/format.h>
#include <simdjson.h>
#include <utf8proc.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "base/file.h"
#include "data/byte_stream.h"

namespace wych::data {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20U;
constexpr std::size_t kMaxBlockBytes = std::size_t{16} << 20U;  // of plain text without a place to cut
constexpr std::size_t kMaxLineBytes = std::size_t{1} << 30U;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

struct Block {
  std::string path;
  bool json = false;
  std::string text;
  i64 offset = 0;      // of the text in the unpacked file
  i64 first_line = 1;  // JSON lines
  bool ends_file = false;
  bool begins_file = false;
};

bool is_json_lines(std::string path) {
  for (const std::string_view packed : {".gz", ".zst"}) {
    if (path.ends_with(packed)) {
      path.resize(path.size() - packed.size());
      break;
    }
  }
  return path.ends_with(".jsonl") || path.ends_with(".json") || path.ends_with(".ndjson");
}

i32 code_point_at(std::string_view text, std::size_t at) {
  i32 code_point = -1;
  const std::string_view rest = text.substr(at, 4);
  utf8proc_iterate(reinterpret_cast<const u8*>(rest.data()), static_cast<utf8proc_ssize_t>(rest.size()),
                   &code_point);
  return code_point;
}

bool is_space(i32 code_point) {
  const utf8proc_category_t category = utf8proc_category(code_point);
  return (code_point >= 9 && code_point <= 13) || code_point == 0x85 || category == UTF8PROC_CATEGORY_ZS ||
         category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

bool is_letter(i32 code_point) {
  const utf8proc_category_t category = utf8proc_category(code_point);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_letter_or_digit(i32 code_point) {
  return is_letter(code_point) || utf8proc_category(code_point) == UTF8PROC_CATEGORY_ND;
}

// The character that ends before `at` > 0; -1 if it is none.
i32 code_point_before(std::string_view text, std::size_t at) {
  std::size_t begin = at - 1;
  while (begin > 0 && at - begin < 4 && (static_cast<u8>(text[begin]) & 0xc0U) == 0x80U) {
    --begin;
  }
  return code_point_at(text.substr(0, at), begin);
}

// Whether "x\n" ends before `at` and a word begins there, x being no space: longer runs of spaces are split
// by what follows them.
bool is_line_cut(std::string_view text, std::size_t at) {
  if (at < 2 || text[at - 1] != '\n') {
    return false;
  }
  const i32 last = code_point_before(text, at - 1);
  const i32 next = code_point_at(text, at);
  return last >= 0 && next >= 0 && !is_space(last) && is_letter_or_digit(next);
}

// Whether a letter stands on both sides of the single space at `at`.
bool is_word_cut(std::string_view text, std::size_t at) {
  const i32 last = code_point_before(text, at);
  const i32 next = code_point_at(text, at + 1);
  return last >= 0 && next >= 0 && is_letter(last) && is_letter(next);
}

// A place to cut at any price: after a line, else between two characters.
std::size_t find_any_cut(std::string_view text) {
  const std::size_t line = text.rfind('\n', text.size() - 2);
  if (line != std::string_view::npos && line + 1 > text.size() / 2) {
    return line + 1;
  }
  std::size_t at = text.size() - 1;
  while (at > text.size() - 4 && (static_cast<u8>(text[at]) & 0xc0U) == 0x80U) {
    --at;
  }
  return at;
}

Error not_utf8(const std::string& path, i64 offset) {
  return {ErrorKind::kData,
          path,
          fmt::format("is not UTF-8: byte {} of the (unpacked) text", offset),
          "convert it, or let such bytes pass with --keep-invalid",
          {}};
}

// Number of places at which decoding would have to start anew.
i64 count_invalid(std::string_view text) {
  i64 count = 0;
  for (std::size_t at = find_invalid_utf8(text); at != std::string_view::npos; at = find_invalid_utf8(text)) {
    ++count;
    text.remove_prefix(at + 1);
  }
  return count;
}

Expected<void> parse_plain(Block& block, const TextOptions& options, TextBatch& batch) {
  if (!simdjson::validate_utf8(block.text.data(), block.text.size())) {
    if (!options.keep_invalid) {
      return not_utf8(block.path, block.offset + static_cast<i64>(find_invalid_utf8(block.text)));
    }
    batch.invalid += count_invalid(block.text);
  }
  const auto section = static_cast<std::size_t>(options.section_bytes);
  std::string_view rest = block.text;
  const bool begins_unit = block.begins_file || section > 0;
  while (section > 0 && rest.size() > 2 * section) {
    const std::size_t cut = find_cut(rest.substr(0, 2 * section), options.cut_at_lines);
    if (cut == 0) {
      break;
    }
    batch.pieces.push_back({std::string(rest.substr(0, cut)), true, false});
    rest.remove_prefix(cut);
  }
  if (rest.size() == block.text.size()) {
    batch.pieces.push_back({std::move(block.text), begins_unit, block.ends_file});
  } else {
    batch.pieces.push_back({std::string(rest), true, block.ends_file});
  }
  return {};
}

// The documents of a block of whole lines.
class JsonLines {
 public:
  JsonLines(const Block& block, const TextOptions& options) : block_(block), options_(options) {}

  Expected<void> parse(TextBatch& batch) {
    const std::string& text = block_.text;
    i64 line = block_.first_line;
    for (std::size_t begin = 0; begin < text.size(); ++line) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      const std::size_t last = text.find_last_not_of(" \t\r\n", end == begin ? begin : end - 1);
      if (end > begin && last != std::string::npos && last >= begin) {
        WYCH_TRY_VOID(add(begin, last + 1, line, batch));
      }
      begin = end + 1;
    }
    return {};
  }

 private:
  [[nodiscard]] Error fault(i64 line, std::string what, std::string hint) const {
    return {ErrorKind::kData, fmt::format("{}:{}", block_.path, line), std::move(what), std::move(hint), {}};
  }

  Expected<void> add(std::size_t begin, std::size_t end, i64 line, TextBatch& batch) {
    const std::string_view content(block_.text.data() + begin, end - begin);
    if (!simdjson::validate_utf8(content.data(), content.size())) {
      if (options_.keep_invalid) {
        ++batch.invalid;
        return {};
      }
      return not_utf8(block_.path, block_.offset + static_cast<i64>(begin + find_invalid_utf8(content)));
    }
    // The whole line is parsed, so that damage anywhere in it shows, and what follows its object.
    simdjson::dom::object object;
    if (const simdjson::error_code error = parser_.parse(content.data(), content.size()).get(object)) {
      return fault(line, fmt::format("is no JSON object: {}", simdjson::error_message(error)),
                   "a line is one object; give --format text for plain text");
    }
    std::string_view value;
    simdjson::error_code found = simdjson::NO_SUCH_FIELD;
    for (const simdjson::dom::key_value_pair field : object) {
      if (field.key == options_.text_key) {  // of a key that is there twice, the last counts
        found = field.value.get(value);
      }
    }
    if (found) {
      return fault(line,
                   fmt::format("has no string \"{}\": {}", options_.text_key, simdjson::error_message(found)),
                   "name the field that holds the text with --text-key");
    }
    if (value.empty()) {
      ++batch.empty;
    } else {
      batch.pieces.push_back({std::string(value), true, true});
    }
    return {};
  }

  const Block& block_;
  const TextOptions& options_;
  simdjson::dom::parser parser_;
};

}  // namespace

// Lines first: they make sections that a reader would make too. Then "word| word": in every byte-level
// pattern a word's letters end before a space, and a single space belongs to the word behind it.
std::size_t find_cut(std::string_view text, bool at_lines) {
  const auto last = [text](char separator, auto accepts) {
    for (std::size_t at = text.rfind(separator); at != std::string_view::npos && at + 1 > text.size() / 2;
         at = at == 0 ? std::string_view::npos : text.rfind(separator, at - 1)) {
      if (at + 1 < text.size() && accepts(at)) {
        return at;
      }
    }
    return std::string_view::npos;
  };
  const std::size_t line = last('\n', [text](std::size_t at) { return is_line_cut(text, at + 1); });
  if (at_lines && line != std::string_view::npos) {
    return line + 1;
  }
  const std::size_t space = last(' ', [text](std::size_t at) { return at > 0 && is_word_cut(text, at); });
  return space != std::string_view::npos ? space : 0;
}

std::size_t find_invalid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    i32 code_point = 0;
    const utf8proc_ssize_t length = utf8proc_iterate(
        reinterpret_cast<const u8*>(text.data()) + at,
        static_cast<utf8proc_ssize_t>(std::min<std::size_t>(text.size() - at, 4)), &code_point);
    if (length <= 0) {
      return at;
    }
    at += static_cast<std::size_t>(length);
  }
  return std::string_view::npos;
}

struct TextReader::State {
  std::vector<std::string> paths;
  TextOptions options;
  i64 total_bytes = 0;
  std::size_t next_file = 0;
  i64 done_bytes = 0;  // of the files before the open one
  std::optional<ByteStream> stream;
  bool json = false;
  std::string rest;  // unpacked, not yet in a block
  i64 offset = 0;    // of `rest` in the unpacked text
  i64 line = 1;
  bool begins_file = false;
  bool stream_ended = false;

  [[nodiscard]] bool at_end() const { return !stream && next_file == paths.size(); }
  [[nodiscard]] i64 bytes_read() const { return done_bytes + (stream ? stream->position() : 0); }

  Expected<void> open_next() {
    const std::string& path = paths[next_file];
    WYCH_TRY(stream, ByteStream::open(path));
    json = options.format == TextFormat::kJsonLines ||
           (options.format == TextFormat::kByName && is_json_lines(path));
    rest.clear();
    offset = 0;
    line = 1;
    begins_file = true;
    stream_ended = false;
    return {};
  }

  Expected<void> read_more(std::size_t wanted) {
    const std::size_t before = rest.size();
    rest.resize(before + wanted);
    WYCH_TRY(const std::size_t got, stream->read(std::span(rest).subspan(before)));
    rest.resize(before + got);
    stream_ended = got < wanted;
    if (offset == 0 && before == 0 && rest.starts_with(kByteOrderMark)) {
      rest.erase(0, kByteOrderMark.size());
      offset = static_cast<i64>(kByteOrderMark.size());
    }
    return {};
  }

  // Where a block may end; 0: not in what has been read.
  [[nodiscard]] std::size_t block_end() const {
    if (stream_ended && rest.size() <= kBlockBytes) {
      return rest.size();
    }
    if (json) {
      const std::size_t line_end = rest.rfind('\n');
      return line_end != std::string::npos ? line_end + 1 : stream_ended ? rest.size() : 0;
    }
    const std::size_t cut = find_cut(rest, options.cut_at_lines);
    if (cut > 0) {
      return cut;
    }
    return stream_ended ? rest.size() : rest.size() >= kMaxBlockBytes ? find_any_cut(rest) : 0;
  }

  // The next block of the open file; an empty text if the file has none.
  Expected<Block> next_block() {
    std::size_t end = 0;
    if (!stream_ended && rest.size() < kBlockBytes) {
      WYCH_TRY_VOID(read_more(kBlockBytes - rest.size()));
    }
    while ((end = block_end()) == 0 && !rest.empty()) {
      if (rest.size() > kMaxLineBytes) {
        return Error{ErrorKind::kData,
                     fmt::format("{}:{}", paths[next_file], line),
                     "is longer than 1 GiB",
                     "a document is a line; give --format text for plain text",
                     {}};
      }
      WYCH_TRY_VOID(read_more(rest.size()));
    }
    Block block{.path = paths[next_file],
                .json = json,
                .text = {},
                .offset = offset,
                .first_line = line,
                .ends_file = stream_ended && end == rest.size(),
                .begins_file = begins_file};
    block.text.reserve(end + simdjson::SIMDJSON_PADDING);
    block.text.assign(rest, 0, end);
    rest.erase(0, end);
    offset += static_cast<i64>(end);
    line += json ? std::count(block.text.begin(), block.text.end(), '\n') : 0;
    begins_file = false;
    return block;
  }

  // One block into `batch`; its size.
  Expected<i64> add_block(TextBatch& batch) {
    if (!stream) {
      WYCH_TRY_VOID(open_next());
    }
    WYCH_TRY(Block block, next_block());
    const auto size = static_cast<i64>(block.text.size());
    if (block.ends_file) {
      done_bytes += stream->position();
      stream.reset();
      ++next_file;
    }
    if (size > 0) {
      WYCH_TRY_VOID(block.json ? JsonLines(block, options).parse(batch) : parse_plain(block, options, batch));
    }
    return size;
  }
};

TextReader::TextReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
TextReader::TextReader(TextReader&&) noexcept = default;
TextReader& TextReader::operator=(TextReader&&) noexcept = default;
TextReader::~TextReader() = default;

i64 TextReader::total_bytes() const { return state_->total_bytes; }

Expected<TextReader> TextReader::open(std::vector<std::string> paths, const TextOptions& options) {
  auto state = std::make_unique<State>();
  state->options = options;
  for (const std::string& path : paths) {
    std::error_code failure;
    const auto size = std::filesystem::file_size(path, failure);
    if (failure) {
      return file_error(ErrorKind::kData, path, "read", failure.value());
    }
    state->total_bytes += static_cast<i64>(size);
  }
  state->paths = std::move(paths);
  return TextReader(std::move(state));
}

Expected<TextBatch> TextReader::next(i64 bytes) {
  TextBatch batch;
  while (bytes > 0 && !state_->at_end()) {
    WYCH_TRY(const i64 size, state_->add_block(batch));
    bytes -= size;
  }
  batch.bytes_read = state_->bytes_read();
  batch.at_end = state_->at_end();
  return batch;
}

}  // namespace wych::data
