// FunctionRef: a borrowed callable, two words wide. A std::function made from a lambda with more than two
// captures allocates, which a training step must not; this never does. The callable must outlive the call.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace wych {

template <class Signature>
class FunctionRef;

// Refers to any callable that accepts Args and returns something convertible to R. Meant for parameters only.
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> && std::is_invocable_r_v<R, F&, Args...>)
      FunctionRef(F&& callable)  // NOLINT: implicit by design
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}

  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

}  // namespace wych
