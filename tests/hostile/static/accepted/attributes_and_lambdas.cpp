#include <cstdint>
#include <cmath>
typedef float vec __attribute__((vector_size(32)));
__attribute__((always_inline)) static inline float f(float v) { return v; }
extern "C" void kernel(void* const* tensors, const int64_t* sizes, const int64_t* strides) {
    const float* x = (const float*)tensors[0];
    float* y = (float*)tensors[1];
    auto g = [&](float v) { return f(v); };
    static constexpr int k = 1'000;
    alignas(64) float buffer[8] = {};
    y[0] = g(x[0]) + k + buffer[0] + 1e-5f + 'a';
    for (int64_t i = 0; i < sizes[0]; ++i) y[i] = x[i];
}
