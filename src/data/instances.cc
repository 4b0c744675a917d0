// Tokens first, then targets by shifting, then what takes targets away: the end of the row, boundaries of
// documents, label masks.
#include "data/instances.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace wych::data {

struct Instances::Row {
  std::span<i32> tokens;
  std::span<i32> targets;
  std::span<i32> document_start;
};

namespace {

// The first document at or after `token` in a file with an index.
i64 first_document_from(const MegatronIndex& index, i64 token) {
  i64 low = 0;
  i64 high = index.num_documents();
  while (low < high) {
    const i64 middle = low + (high - low) / 2;
    if (index.document_start(middle) < token) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

void check_options(const BatchOptions& options) {
  WYCH_CHECK(options.sequence_length >= 2, "sequence length {}", options.sequence_length);
  WYCH_CHECK(options.num_shards >= 1 && options.shard >= 0 && options.shard < options.num_shards,
             "shard {} of {}", options.shard, options.num_shards);
  WYCH_CHECK(options.sequences_per_batch >= 1 && options.sequences_per_batch % options.num_shards == 0,
             "{} sequences for {} shards", options.sequences_per_batch, options.num_shards);
  WYCH_CHECK(options.eos_id >= 0 && options.eos_id < options.vocab_size, "end-of-text id {} of {}",
             options.eos_id, options.vocab_size);
  WYCH_CHECK(!options.packing || options.targets == Targets::kWithin, "packed instances end with a document");
}

}  // namespace

std::vector<InstanceFile> whole_files(std::vector<TokenFile> files) {
  std::vector<InstanceFile> result;
  result.reserve(files.size());
  for (TokenFile& file : files) {
    result.push_back({std::move(file)});
  }
  return result;
}

// Instances cut from `tokens` tokens that lie together.
i64 Instances::row_instances(i64 tokens) const {
  return std::max<i64>(tokens - (options_.targets == Targets::kNext ? 1 : 0), 0) / options_.sequence_length;
}

i64 Instances::instances_of(std::size_t file) const {
  if (options_.packing) {
    return (*packings_)[file].num_instances();
  }
  const TokenFile& tokens = (*files_)[file].tokens;
  return tokens.columns() > 0 ? tokens.num_tokens() / tokens.columns() * row_instances(tokens.columns())
                              : row_instances(tokens.num_tokens());
}

Expected<Instances> Instances::create(std::vector<InstanceFile> files, const BatchOptions& options) {
  check_options(options);
  Instances result;
  result.options_ = options;
  result.files_ = std::make_shared<const std::vector<InstanceFile>>(std::move(files));
  if (options.packing) {
    auto packings = std::make_shared<std::vector<Packing>>();
    for (const InstanceFile& file : result.files()) {
      WYCH_TRY(const std::vector<TokenSpan> documents,
               find_documents(file.tokens, options.eos_id, options.vocab_size));
      packings->push_back(Packing::pack(documents, options.sequence_length));
      result.padding_ += packings->back().padding();
    }
    result.packings_ = std::move(packings);
  }
  std::vector<InstanceRange> ranges;
  i64 tokens = 0;
  for (std::size_t i = 0; i < result.files().size(); ++i) {
    const TokenFile& file = result.files()[i].tokens;
    tokens += file.num_tokens();
    const i64 count = result.instances_of(i);
    if (!options.packing) {
      result.tokens_dropped_ += file.num_tokens() - count * options.sequence_length;
    }
    if (count > 0) {
      ranges.push_back({static_cast<i64>(i), count});
    }
  }
  if (ranges.empty()) {
    return Error{ErrorKind::kData,
                 result.files().empty() ? "token files" : result.files().front().tokens.path(),
                 fmt::format("{} file(s) with {} tokens do not hold one sequence of {}",
                             result.files().size(), tokens, options.sequence_length),
                 "give more data or a shorter sequence",
                 {}};
  }
  result.choose(std::move(ranges));
  return result;
}

void Instances::choose(std::vector<InstanceRange> ranges) {
  WYCH_CHECK(!ranges.empty(), "no instances chosen");
  ranges_ = std::move(ranges);
  first_instance_.assign(1, 0);
  for (const InstanceRange& range : ranges_) {
    WYCH_CHECK(range.count <= instances_of(static_cast<std::size_t>(range.file)), "{} instances of file {}",
               range.count, range.file);
    first_instance_.push_back(first_instance_.back() + range.count);
  }
}

void Instances::shape(Batch& batch) const {
  const auto size = static_cast<std::size_t>(rows() * options_.sequence_length);
  batch.tokens.resize(size);
  batch.targets.resize(size);
  batch.document_start.resize(size);
}

Instances::Row Instances::row_of(i64 row, Batch& batch) const {
  WYCH_CHECK(row >= 0 && row < rows(), "row {} of {}", row, rows());
  const auto length = static_cast<std::size_t>(options_.sequence_length);
  const std::size_t begin = static_cast<std::size_t>(row) * length;
  return {std::span(batch.tokens).subspan(begin, length), std::span(batch.targets).subspan(begin, length),
          std::span(batch.document_start).subspan(begin, length)};
}

Expected<void> Instances::fill_row(i64 index, i64 row, Batch& batch) const {
  WYCH_CHECK(index >= 0 && index < count(), "instance {} of {}", index, count());
  const auto next = std::upper_bound(first_instance_.begin(), first_instance_.end(), index);
  const auto at = static_cast<std::size_t>(next - first_instance_.begin()) - 1;
  const auto file = static_cast<std::size_t>(ranges_[at].file);
  const i64 instance = index - first_instance_[at];
  return options_.packing
             ? fill_packed(files()[file], (*packings_)[file].instance(instance), row_of(row, batch))
             : fill_cut(files()[file], instance, row_of(row, batch));
}

void Instances::fill_padding_row(i64 row, Batch& batch) const {
  const Row out = row_of(row, batch);
  std::fill(out.tokens.begin(), out.tokens.end(), options_.eos_id);
  std::fill(out.targets.begin(), out.targets.end(), kIgnoredTarget);
  std::fill(out.document_start.begin(), out.document_start.end(), 0);
}

Expected<void> Instances::fill_cut(const InstanceFile& file, i64 instance, Row row) const {
  const i64 length = options_.sequence_length;
  const i64 columns = file.tokens.columns();
  const i64 in_row = columns > 0 ? row_instances(columns) : 0;
  const i64 begin =
      columns > 0 ? instance / in_row * columns + instance % in_row * length : instance * length;
  WYCH_TRY_VOID(file.tokens.read(begin, options_.vocab_size, row.tokens));
  std::copy(row.tokens.begin() + 1, row.tokens.end(), row.targets.begin());
  row.targets.back() = kIgnoredTarget;
  if (options_.targets == Targets::kNext) {
    WYCH_TRY_VOID(file.tokens.read(begin + length, options_.vocab_size, row.targets.last(1)));
  }
  mark_documents(file, begin, row);
  if (file.label_mask) {
    const i64 targets = length - (options_.targets == Targets::kNext ? 0 : 1);
    for (i64 t = 0; t < targets; ++t) {
      if (!file.label_mask->allows(begin + t + 1)) {
        row.targets[static_cast<std::size_t>(t)] = kIgnoredTarget;
      }
    }
  }
  return {};
}

// The last token of a document, at `place`, has no target unless targets cross documents.
void Instances::end_document(std::size_t place, Row row) const {
  if (!options_.targets_cross_documents) {
    row.targets[place] = kIgnoredTarget;
  }
}

// Documents end with their end-of-text, or where the file's index says. `begin` is the row's first token.
void Instances::mark_documents(const InstanceFile& file, i64 begin, Row row) const {
  const MegatronIndex* index = file.tokens.index();
  i64 document = index != nullptr ? first_document_from(*index, begin + 1) : 0;
  i32 start = 0;
  for (std::size_t place = 0; place < row.tokens.size(); ++place) {
    row.document_start[place] = start;
    const i64 next = begin + static_cast<i64>(place) + 1;
    bool ends = row.tokens[place] == options_.eos_id;
    while (index != nullptr && document < index->num_documents() && index->document_start(document) == next) {
      ends = true;
      ++document;
    }
    if (ends) {
      end_document(place, row);
      start = options_.document_mask ? static_cast<i32>(place) + 1 : 0;
    }
  }
}

Expected<void> Instances::fill_packed(const InstanceFile& file, std::span<const TokenSpan> pieces,
                                      Row row) const {
  std::size_t place = 0;
  for (const TokenSpan& piece : pieces) {
    WYCH_TRY_VOID(file.tokens.read(piece.begin, options_.vocab_size,
                                   row.tokens.subspan(place, static_cast<std::size_t>(piece.size()))));
    place += static_cast<std::size_t>(piece.size());
  }
  std::fill(row.tokens.begin() + static_cast<std::ptrdiff_t>(place), row.tokens.end(), options_.eos_id);
  std::fill(row.targets.begin(), row.targets.end(), kIgnoredTarget);
  std::copy(row.tokens.begin() + 1, row.tokens.begin() + static_cast<std::ptrdiff_t>(place),
            row.targets.begin());
  std::size_t start = 0;
  const auto mark_start = [&](std::size_t count) {
    const std::span<i32> starts = row.document_start.subspan(start, count);
    std::fill(starts.begin(), starts.end(), options_.document_mask ? static_cast<i32>(start) : 0);
  };
  for (const TokenSpan& piece : pieces) {
    const auto count = static_cast<std::size_t>(piece.size());
    mark_start(count);
    for (std::size_t t = 0; file.label_mask && t < count; ++t) {
      if (start + t > 0 && !file.label_mask->allows(piece.begin + static_cast<i64>(t))) {
        row.targets[start + t - 1] = kIgnoredTarget;
      }
    }
    start += count;
    end_document(start - 1, row);
  }
  mark_start(row.tokens.size() - start);
  return {};
}

}  // namespace wych::data
