// Strict reader and streaming writer of safetensors (safetensors.h).
#include "io/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <set>

#include "io/json.h"

namespace wych::io {
namespace {

constexpr i64 kPrefixBytes = 8;
constexpr i64 kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr i64 kHeaderAlignment = 64;          // so that mapped tensors of one dtype are aligned

struct TypeEntry {
  StoredType type;
  std::string_view name;
  i64 bytes;
};
constexpr std::array<TypeEntry, 15> kTypes = {{{StoredType::kF64, "F64", 8},
                                               {StoredType::kF32, "F32", 4},
                                               {StoredType::kF16, "F16", 2},
                                               {StoredType::kBF16, "BF16", 2},
                                               {StoredType::kF8E4M3, "F8_E4M3", 1},
                                               {StoredType::kF8E5M2, "F8_E5M2", 1},
                                               {StoredType::kI64, "I64", 8},
                                               {StoredType::kI32, "I32", 4},
                                               {StoredType::kI16, "I16", 2},
                                               {StoredType::kI8, "I8", 1},
                                               {StoredType::kU64, "U64", 8},
                                               {StoredType::kU32, "U32", 4},
                                               {StoredType::kU16, "U16", 2},
                                               {StoredType::kU8, "U8", 1},
                                               {StoredType::kBool, "BOOL", 1}}};

template <class T>
T load_at(std::span<const std::byte> bytes, i64 index) {
  T value;
  std::memcpy(&value, bytes.data() + index * static_cast<i64>(sizeof(T)), sizeof(T));
  return value;
}

// IEEE binary16, exactly.
float half_to_float(u16 bits) {
  const u32 sign = static_cast<u32>(bits & 0x8000U) << 16U;
  const u32 exponent = (bits >> 10U) & 0x1fU;
  const u32 mantissa = bits & 0x3ffU;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<u32>(magnitude) | sign);
  }
  const u32 wide = exponent == 0x1f ? 0xffU : exponent + 112U;
  return std::bit_cast<float>(sign | (wide << 23U) | (mantissa << 13U));
}

template <class Source, class T>
void copy_as(std::span<const std::byte> bytes, std::span<T> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<T>(load_at<Source>(bytes, static_cast<i64>(i)));
  }
}

// False if the type does not convert to a floating T.
template <class T>
bool copy_floats(const TensorView& view, std::span<T> out) {
  switch (view.type) {
    case StoredType::kF64:
      copy_as<double>(view.bytes, out);
      return true;
    case StoredType::kF32:
      copy_as<float>(view.bytes, out);
      return true;
    case StoredType::kBF16:
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = static_cast<float>(load_at<bf16>(view.bytes, static_cast<i64>(i)));
      }
      return true;
    case StoredType::kF16:
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = half_to_float(load_at<u16>(view.bytes, static_cast<i64>(i)));
      }
      return true;
    default:
      return false;
  }
}

template <class T>
bool copy_integers(const TensorView& view, std::span<T> out) {
  switch (view.type) {
    case StoredType::kI64:
      copy_as<i64>(view.bytes, out);
      return true;
    case StoredType::kI32:
      copy_as<i32>(view.bytes, out);
      return true;
    case StoredType::kU8:
      copy_as<u8>(view.bytes, out);
      return true;
    default:
      return false;
  }
}

// One entry of the header. `data` is everything behind the header. An empty string is success.
std::string parse_entry(const Json& entry, std::span<const std::byte> data, TensorView& view) {
  const Json* type = entry.find("dtype");
  const Json* shape = entry.find("shape");
  const Json* offsets = entry.find("data_offsets");
  const Json::Object* object = entry.get<Json::Object>();
  if (object == nullptr || object->size() != 3 || type == nullptr || shape == nullptr || offsets == nullptr) {
    return "expected an object of dtype, shape and data_offsets";
  }
  const std::string* type_name = type->get<std::string>();
  const auto* found = std::find_if(kTypes.begin(), kTypes.end(), [type_name](const TypeEntry& known) {
    return type_name != nullptr && known.name == *type_name;
  });
  if (found == kTypes.end()) {
    return "unknown dtype, found " + type->describe();
  }
  view.type = found->type;
  const Json::Array* extents = shape->get<Json::Array>();
  if (extents == nullptr) {
    return "shape is " + shape->describe() + ", expected a list";
  }
  for (const Json& extent : *extents) {
    const i64* value = extent.get<i64>();
    if (value == nullptr || *value < 0) {
      return "an extent of the shape is " + extent.describe();
    }
    view.shape.push_back(*value);
  }
  const std::optional<i64> elements = shape_elements(view.shape);
  if (!elements || *elements > std::numeric_limits<i64>::max() / found->bytes) {
    return "shape " + shape_text(view.shape) + " is too large";
  }
  view.num_elements = *elements;
  const Json::Array* range = offsets->get<Json::Array>();
  const bool pair = range != nullptr && range->size() == 2;
  const i64* first = pair ? (*range)[0].get<i64>() : nullptr;
  const i64* last = pair ? (*range)[1].get<i64>() : nullptr;
  if (first == nullptr || last == nullptr) {
    return "data_offsets are not two integers";
  }
  if (*first < 0 || *first > *last || *last > static_cast<i64>(data.size())) {
    return fmt::format("data_offsets [{}, {}] lie outside the {} bytes of data", *first, *last, data.size());
  }
  if (*last - *first != *elements * found->bytes) {
    return fmt::format("data_offsets span {} bytes, but shape {} of {} needs {}", *last - *first,
                       shape_text(view.shape), found->name, *elements * found->bytes);
  }
  view.bytes = data.subspan(static_cast<std::size_t>(*first), static_cast<std::size_t>(*last - *first));
  return "";
}

}  // namespace

i64 stored_bytes(StoredType type) { return kTypes[static_cast<std::size_t>(type)].bytes; }

std::string_view stored_name(StoredType type) { return kTypes[static_cast<std::size_t>(type)].name; }

StoredType stored_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return StoredType::kF32;
    case DType::kF64:
      return StoredType::kF64;
    case DType::kBF16:
      return StoredType::kBF16;
    case DType::kI32:
      return StoredType::kI32;
    case DType::kI64:
      return StoredType::kI64;
    case DType::kU8:
      return StoredType::kU8;
  }
  check_failed(__FILE__, __LINE__, "dtype", "not a DType");
}

std::string shape_text(std::span<const i64> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::optional<i64> shape_elements(std::span<const i64> shape) {
  i64 elements = 1;
  for (const i64 extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(elements, extent, &elements)) {
      return std::nullopt;
    }
  }
  return elements;
}

Expected<SafetensorsFile> SafetensorsFile::open(const std::string& path, ErrorKind kind) {
  SafetensorsFile file;
  file.path_ = path;
  file.kind_ = kind;
  WYCH_TRY(file.file_, MappedFile::open(path, kind));
  WYCH_TRY_VOID(file.parse());
  return file;
}

Error SafetensorsFile::error(std::string_view name, std::string what, std::string hint) const {
  return Error{
      kind_, name.empty() ? path_ : fmt::format("{}: {}", path_, name), std::move(what), std::move(hint), {}};
}

Error SafetensorsFile::damage(std::string_view name, std::string what) const {
  return error(name, std::move(what), "the file is incomplete, damaged or of another format: fetch it again");
}

Expected<void> SafetensorsFile::parse() {
  const std::span<const std::byte> bytes = file_.bytes();
  const i64 size = static_cast<i64>(bytes.size());
  if (size < kPrefixBytes) {
    return damage("", fmt::format("has {} bytes, too few for a safetensors file", size));
  }
  const u64 announced = load_at<u64>(bytes, 0);
  if (announced > static_cast<u64>(std::min(kMaxHeaderBytes, size - kPrefixBytes))) {
    return damage("", fmt::format("announces a header of {} bytes, but has {} in all", announced, size));
  }
  const i64 header_bytes = static_cast<i64>(announced);
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + kPrefixBytes,
                                static_cast<std::size_t>(header_bytes));
  WYCH_TRY(const Json tree, parse_json(header, path_ + ": header", kind_));
  const Json::Object* object = tree.get<Json::Object>();
  if (object == nullptr) {
    return damage("", "header is " + tree.describe() + ", expected an object");
  }
  const std::span<const std::byte> data =
      bytes.subspan(static_cast<std::size_t>(kPrefixBytes + header_bytes));
  for (const auto& [name, entry] : *object) {
    if (name == "__metadata__") {
      const Json::Object* pairs = entry.get<Json::Object>();
      for (const auto& [key, value] : pairs != nullptr ? *pairs : Json::Object{}) {
        const std::string* text = value.get<std::string>();
        metadata_[key] = text != nullptr ? *text : value.describe();
      }
      continue;
    }
    TensorView view;
    view.name = name;
    if (std::string fault = parse_entry(entry, data, view); !fault.empty()) {
      return damage(name, std::move(fault));
    }
    tensors_.push_back(std::move(view));
  }
  std::sort(tensors_.begin(), tensors_.end(),
            [](const TensorView& a, const TensorView& b) { return a.name < b.name; });
  return check_layout(data);
}

Expected<void> SafetensorsFile::check_layout(std::span<const std::byte> data) const {
  // Sorted by position (empty tensors before the one that begins there), each must begin where the last
  // ended.
  std::vector<const TensorView*> placed;
  for (const TensorView& view : tensors_) {
    placed.push_back(&view);
  }
  std::sort(placed.begin(), placed.end(), [](const TensorView* a, const TensorView* b) {
    return std::pair(a->bytes.data(), a->bytes.size()) < std::pair(b->bytes.data(), b->bytes.size());
  });
  const std::byte* end = data.data();
  for (const TensorView* view : placed) {
    if (view->bytes.data() != end) {
      return damage(view->name, fmt::format("begins {} bytes {} the end of the tensor before it",
                                            std::abs(view->bytes.data() - end),
                                            view->bytes.data() < end ? "before" : "behind"));
    }
    end += view->bytes.size();
  }
  if (end != data.data() + data.size()) {
    return damage("", fmt::format("has {} bytes behind the last tensor", data.data() + data.size() - end));
  }
  return {};
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const TensorView& view, std::string_view key) { return view.name < key; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

template <class T>
Expected<void> SafetensorsFile::read(std::string_view name, std::span<T> out) const {
  const TensorView* view = find(name);
  if (view == nullptr) {
    return error(name, "no such tensor");
  }
  if (view->num_elements != static_cast<i64>(out.size())) {
    return error(name,
                 fmt::format("has shape {}, expected {} elements", shape_text(view->shape), out.size()));
  }
  bool converts = false;
  if constexpr (std::is_floating_point_v<T>) {
    converts = copy_floats(*view, out);
  } else {
    converts = copy_integers(*view, out);
    if (sizeof(T) < sizeof(i64) && view->type == StoredType::kI64) {
      for (std::size_t i = 0; i < out.size(); ++i) {
        if (load_at<i64>(view->bytes, static_cast<i64>(i)) != static_cast<i64>(out[i])) {
          return error(name, fmt::format("element {} does not fit 32 bits", i));
        }
      }
    }
  }
  if (!converts) {
    return error(name, fmt::format("has dtype {}, which is not read as {}", stored_name(view->type),
                                   dtype_name(DTypeOf<T>::kValue)));
  }
  return {};
}

template <class T>
Expected<std::vector<T>> SafetensorsFile::read(std::string_view name) const {
  const TensorView* view = find(name);
  std::vector<T> out(view == nullptr ? 0 : static_cast<std::size_t>(view->num_elements));
  WYCH_TRY_VOID(read(name, std::span<T>(out)));
  return out;
}

template Expected<void> SafetensorsFile::read(std::string_view, std::span<float>) const;
template Expected<void> SafetensorsFile::read(std::string_view, std::span<double>) const;
template Expected<void> SafetensorsFile::read(std::string_view, std::span<i32>) const;
template Expected<void> SafetensorsFile::read(std::string_view, std::span<i64>) const;
template Expected<std::vector<float>> SafetensorsFile::read(std::string_view) const;
template Expected<std::vector<double>> SafetensorsFile::read(std::string_view) const;
template Expected<std::vector<i32>> SafetensorsFile::read(std::string_view) const;
template Expected<std::vector<i64>> SafetensorsFile::read(std::string_view) const;

Expected<SafetensorsWriter> SafetensorsWriter::create(const std::string& path,
                                                      std::span<const TensorSpec> specs,
                                                      const std::map<std::string, std::string>& metadata,
                                                      ErrorKind kind) {
  SafetensorsWriter writer;
  JsonObject header;
  if (!metadata.empty()) {
    JsonObject pairs;
    for (const auto& [key, value] : metadata) {
      pairs.add(key, value);
    }
    header.add_raw("__metadata__", pairs.text());
  }
  std::set<std::string_view> names;
  i64 at = 0;
  for (const TensorSpec& spec : specs) {
    WYCH_CHECK(names.insert(spec.name).second, "tensor {} twice", spec.name);
    const std::optional<i64> elements = shape_elements(spec.shape);
    WYCH_CHECK(elements.has_value(), "shape of {}", spec.name);
    const std::array<i64, 2> range = {at, at + *elements * dtype_bytes(spec.dtype)};
    JsonObject entry;
    entry.add("dtype", stored_name(stored_type(spec.dtype))).add_raw("shape", json_list(spec.shape));
    entry.add_raw("data_offsets", json_list(range));
    header.add_raw(spec.name, entry.text());
    writer.offsets_.push_back(at);
    at = range[1];
  }
  std::string text = header.text();
  const i64 data_begin = round_up(kPrefixBytes + static_cast<i64>(text.size()), kHeaderAlignment);
  text.resize(static_cast<std::size_t>(data_begin - kPrefixBytes), ' ');
  for (i64& offset : writer.offsets_) {
    offset += data_begin;
  }
  const u64 length = text.size();
  std::string prefix(kPrefixBytes, '\0');
  std::memcpy(prefix.data(), &length, sizeof(length));
  WYCH_TRY(writer.file_, FileWriter::create(path, kind));
  WYCH_TRY_VOID(writer.file_.write(prefix + text));
  writer.position_ = data_begin;
  writer.end_ = data_begin + at;
  return writer;
}

Expected<void> SafetensorsWriter::write(std::span<const std::byte> bytes) {
  position_ += static_cast<i64>(bytes.size());
  WYCH_CHECK(position_ <= end_, "more bytes than the specs announced");
  return file_.write(bytes);
}

Expected<void> SafetensorsWriter::finish() {
  WYCH_CHECK(position_ == end_, "{} bytes of {} written", position_, end_);
  WYCH_TRY_VOID(file_.sync());
  return file_.close();
}

}  // namespace wych::io
