// Errors as text.
#include "base/expected.h"

namespace wych {

std::string Error::text() const {
  std::string out = where.empty() ? what : where + ": " + what;
  if (!hint.empty()) {
    out += "; " + hint;
  }
  for (const Error& next : more) {
    out += '\n';
    out += next.text();
  }
  return out;
}

}  // namespace wych
