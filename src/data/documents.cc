#include "data/documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>

#include "data/byte_stream.h"

namespace wych::data {
namespace {

std::vector<TokenSpan> from_index(const MegatronIndex& index) {
  std::vector<TokenSpan> documents;
  for (i64 d = 0; d < index.num_documents(); ++d) {
    const TokenSpan span{index.document_start(d), index.document_start(d + 1)};
    if (span.size() > 0) {
      documents.push_back(span);
    }
  }
  return documents;
}

// The two numbers a line begins with.
bool parse_row(std::string_view line, TokenSpan& row) {
  const char* end = line.data() + line.size();
  const auto first = std::from_chars(line.data(), end, row.begin);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ',') {
    return false;
  }
  const auto second = std::from_chars(first.ptr + 1, end, row.end);
  return second.ec == std::errc() && (second.ptr == end || *second.ptr == ',' || *second.ptr == '\r');
}

Expected<std::vector<TokenSpan>> from_sidecar(const std::string& path, const TokenFile& file) {
  WYCH_TRY(const std::string text, read_unpacked(path));
  std::vector<TokenSpan> documents;
  i64 line_number = 0;
  i64 last = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line(text.data() + begin, end - begin);
    begin = end + 1;
    ++line_number;
    TokenSpan row;
    const bool parsed = parse_row(line, row);
    if (!parsed || row.begin < last || row.end < row.begin || row.end > file.num_tokens()) {
      return Error{ErrorKind::kData,
                   fmt::format("{}:{}", path, line_number),
                   fmt::format("\"{}\"; expected start,end of a document after token {} in a file of {}",
                               line.substr(0, 80), last, file.num_tokens()),
                   "write the file of document starts and ends again, or remove it",
                   {}};
    }
    last = row.end;
    if (row.size() > 0) {
      documents.push_back(row);
    }
  }
  return documents;
}

Expected<std::vector<TokenSpan>> from_end_of_text(const TokenFile& file, i32 eos_id, i64 vocab_size) {
  constexpr i64 kPiece = i64{1} << 18U;
  std::vector<TokenSpan> documents;
  std::vector<i32> tokens;
  i64 start = 0;
  for (i64 begin = 0; begin < file.num_tokens(); begin += kPiece) {
    tokens.resize(static_cast<std::size_t>(std::min(kPiece, file.num_tokens() - begin)));
    WYCH_TRY_VOID(file.read(begin, vocab_size, tokens));
    for (auto at = std::find(tokens.begin(), tokens.end(), eos_id); at != tokens.end();
         at = std::find(at + 1, tokens.end(), eos_id)) {
      const i64 end = begin + (at - tokens.begin()) + 1;
      documents.push_back({start, end});
      start = end;
    }
  }
  if (start < file.num_tokens()) {
    documents.push_back({start, file.num_tokens()});
  }
  return documents;
}

}  // namespace

std::string sidecar_path(const std::string& path) {
  return path.ends_with(".npy") ? path.substr(0, path.size() - 4) + ".csv.gz" : "";
}

Expected<std::vector<TokenSpan>> find_documents(const TokenFile& file, i32 eos_id, i64 vocab_size) {
  if (file.index() != nullptr) {
    return from_index(*file.index());
  }
  const std::string sidecar = sidecar_path(file.path());
  std::error_code failure;
  if (!sidecar.empty() && std::filesystem::exists(sidecar, failure)) {
    return from_sidecar(sidecar, file);
  }
  return from_end_of_text(file, eos_id, vocab_size);
}

Expected<LabelMask> LabelMask::open(const std::string& path, const TokenFile& tokens) {
  LabelMask mask;
  WYCH_TRY(mask.file_, MappedFile::open(path, ErrorKind::kData));
  const auto size = static_cast<i64>(mask.file_.bytes().size());
  if (size != tokens.num_tokens()) {
    return Error{ErrorKind::kData,
                 path,
                 fmt::format("has {} bytes; {} has {} tokens", size, tokens.path(), tokens.num_tokens()),
                 "a label mask has one byte a token, and masks are named in the order of the token files",
                 {}};
  }
  return mask;
}

}  // namespace wych::data
