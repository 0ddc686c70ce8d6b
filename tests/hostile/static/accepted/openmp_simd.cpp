#include <cstdint>
#include <cmath>
#include <omp.h>
constexpr float table[4] = {1.0f, 2.0f, 3.0f, 4.0f};
#define UNROLL 4
namespace {
template <typename T> static inline T twice(T v) { return v + v; }
struct Pair { float a, b; };
}
extern "C" void kernel(void* const* tensors, const int64_t* sizes, const int64_t* strides) {
    const float* x = (const float*)tensors[0];
    float* y = (float*)tensors[1];
    // system("in a comment"); asm
    /* fork() */
    const float read = 1.0f, time = 2.0f;
    #pragma omp parallel for schedule(static) if (sizes[0] >= 1024)
    for (int64_t j = 0; j < 1; ++j) {}
    #pragma GCC unroll 4
    for (int64_t j = 0; j < 1; ++j) {}
    #pragma omp simd
    for (int64_t j = 0; j < sizes[0]; ++j) y[j] = twice(x[j]) * read + time + table[j & 3];
    for (int64_t i = 0; i < sizes[0]; ++i) y[i] = x[i];
}
