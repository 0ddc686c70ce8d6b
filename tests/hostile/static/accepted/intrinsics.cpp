#include <immintrin.h>
#include <cstdint>
#include <cmath>
extern "C" void kernel(void* const* tensors, const int64_t* sizes, const int64_t* strides) {
    const float* x = (const float*)tensors[0];
    float* y = (float*)tensors[1];
#ifdef __AVX2__
    for (int64_t i = 0; i + 8 <= sizes[0]; i += 8) _mm256_storeu_ps(y + i, _mm256_loadu_ps(x + i));
#endif
    for (int64_t i = 0; i < sizes[0]; ++i) y[i] = x[i];
}
