#include "data/token_convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <vector>

#include "data/documents.h"

namespace wych::data {
namespace {

Error usage(std::string where, std::string what, std::string hint) {
  return {ErrorKind::kUsage, std::move(where), std::move(what), std::move(hint), {}};
}

Expected<void> check(const TokenFile& from, const ConvertOptions& options) {
  const std::string_view type = token_type_name(options.type);
  switch (options.format) {
    case TokenFormat::kRaw:
      if (is_signed(options.type)) {
        return usage("raw", fmt::format("ids of {} have no sign to lose", type),
                     "choose u8, u16, u32 or u64");
      }
      return {};
    case TokenFormat::kNumpy:
      return {};
    case TokenFormat::kMegatron:
      if (!megatron_holds(options.type)) {
        return usage("megatron", fmt::format("has no code for {}", type), "choose u16 or i32");
      }
      return {};
    case TokenFormat::kLlmC:
      if (options.type != TokenType::kU16 && options.type != TokenType::kU32) {
        return usage("llm.c", fmt::format("holds no {}", type), "choose u16 or u32");
      }
      if (from.num_tokens() > std::numeric_limits<i32>::max()) {
        return usage("llm.c", fmt::format("holds fewer than 2^31 tokens, not {}", from.num_tokens()),
                     "convert smaller files");
      }
      return {};
    case TokenFormat::kLlmq:
      break;
  }
  return usage(std::string(token_format_name(options.format)), "is not written", "choose another format");
}

std::string header(const TokenFile& from, const ConvertOptions& options) {
  switch (options.format) {
    case TokenFormat::kNumpy:
      return numpy_header(options.type, from.num_tokens(), from.columns());
    case TokenFormat::kLlmC:
      return llm_c_header(options.type, from.num_tokens());
    default:
      return "";
  }
}

Expected<void> write_ids(const TokenFile& from, const std::string& path, const ConvertOptions& options) {
  constexpr i64 kPiece = i64{1} << 20U;
  const i64 limit = largest_id(options.type) + 1;
  const i64 vocab_size = options.vocab_size > 0 ? std::min(options.vocab_size, limit) : limit;
  WYCH_TRY(TokenWriter writer, TokenWriter::create(path, options.type, header(from, options)));
  std::vector<i32> tokens;
  for (i64 begin = 0; begin < from.num_tokens(); begin += kPiece) {
    tokens.resize(static_cast<std::size_t>(std::min(kPiece, from.num_tokens() - begin)));
    WYCH_TRY_VOID(from.read(begin, vocab_size, tokens));
    WYCH_TRY_VOID(writer.append(tokens));
  }
  WYCH_TRY(const u64 hash, writer.finish());
  (void)hash;
  return {};
}

// Lengths of the documents; together all tokens.
Expected<std::vector<i32>> document_lengths(const TokenFile& from, const ConvertOptions& options) {
  WYCH_TRY(const std::vector<TokenSpan> documents,
           find_documents(from, options.eos_id, largest_id(TokenType::kI32) + 1));
  std::vector<i32> lengths;
  i64 end = 0;
  for (const TokenSpan& document : documents) {
    if (document.begin != end || document.size() > std::numeric_limits<i32>::max()) {
      return usage(from.path(),
                   document.begin != end
                       ? fmt::format("tokens {} to {} belong to no document", end, document.begin)
                       : fmt::format("a document has {} tokens", document.size()),
                   "Megatron's pairs hold documents back to back, each shorter than 2^31");
    }
    end = document.end;
    lengths.push_back(static_cast<i32>(document.size()));
  }
  if (end != from.num_tokens()) {
    return usage(from.path(), fmt::format("tokens from {} on belong to no document", end), "");
  }
  return lengths;
}

Expected<void> move_into_place(const std::string& path) {
  std::error_code failure;
  std::filesystem::rename(path + ".tmp", path, failure);
  if (failure) {
    return file_error(ErrorKind::kData, path, "rename", failure.value());
  }
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return sync_directory(parent.empty() ? "." : parent, ErrorKind::kData);
}

}  // namespace

Expected<void> convert_token_file(const TokenFile& from, const std::string& path,
                                  const ConvertOptions& options) {
  WYCH_TRY_VOID(check(from, options));
  const bool pair = options.format == TokenFormat::kMegatron;
  if (pair && options.eos_id < 0 && from.index() == nullptr &&
      !std::filesystem::exists(sidecar_path(from.path()))) {
    return usage(from.path(), "does not say where documents end", "give the id that ends them with --eos");
  }
  const std::string ids_path = pair ? path + ".bin" : path;
  for (const std::string& name : {ids_path, path + ".idx"}) {
    if ((pair || name == ids_path) && std::filesystem::exists(name)) {
      return usage(name, "is there already", "nothing was written; remove it, or give another name");
    }
  }
  // Before anything is written: it may be what is wrong with the file.
  std::vector<i32> lengths;
  if (pair) {
    WYCH_TRY(lengths, document_lengths(from, options));
  }
  Expected<void> written = write_ids(from, ids_path + ".tmp", options);
  if (!written) {
    std::error_code ignored;
    std::filesystem::remove(ids_path + ".tmp", ignored);
    return written;
  }
  if (!pair) {
    return move_into_place(ids_path);
  }
  WYCH_TRY_VOID(move_into_place(ids_path));
  return write_file_atomic(path + ".idx", megatron_index_bytes(options.type, lengths), ErrorKind::kData);
}

}  // namespace wych::data
