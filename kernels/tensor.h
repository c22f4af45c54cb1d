// Typed pointers that operations take: data and element type; the shape stands at each use.
#pragma once

#include "runtime/base/dtype.h"

namespace weft::kernels {

struct In {
  const void* data = nullptr;
  DType dtype = DType::f32;

  In() = default;
  In(const void* p, DType d) : data(p), dtype(d) {}
  template <class T>
  In(const T* p) : data(p), dtype(dtype_of<T>::value) {}
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
  explicit operator bool() const { return data != nullptr; }
};

struct Out {
  void* data = nullptr;
  DType dtype = DType::f32;

  Out() = default;
  Out(void* p, DType d) : data(p), dtype(d) {}
  template <class T>
  Out(T* p) : data(p), dtype(dtype_of<T>::value) {}
  operator In() const { return {data, dtype}; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

}  // namespace weft::kernels
