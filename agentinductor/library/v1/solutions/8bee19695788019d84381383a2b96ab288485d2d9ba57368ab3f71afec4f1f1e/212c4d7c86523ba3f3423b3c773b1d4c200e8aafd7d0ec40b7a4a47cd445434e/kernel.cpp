#include <cmath>
#include <cstdint>
#include <limits>

#define INLINE static inline __attribute__((always_inline))

INLINE uint32_t bits_of(float v) { return __builtin_bit_cast(uint32_t, v); }
INLINE float float_of(uint32_t v) { return __builtin_bit_cast(float, v); }


extern "C" void kernel(void* const* tensors, const int64_t* sizes, const int64_t* strides) {
    const int64_t rows = sizes[0];
    const int64_t cols = 768;
    const float* __restrict x0 = (const float*)tensors[0];
    const float* __restrict x1 = (const float*)tensors[1];
    float* __restrict y0 = (float*)tensors[2];
    const int64_t outer_size = rows;
    const int64_t inner_size = cols;
    for (int64_t outer = 0; outer < outer_size; ++outer) {
        const int64_t o_rows = outer;
        alignas(64) float t1_lanes[8];
        for (int lane = 0; lane < 8; ++lane) t1_lanes[lane] = 0.0f;
        for (int64_t base = 0; base < cols / 8 * 8; base += 8) {
            #pragma omp simd
            for (int lane = 0; lane < 8; ++lane) {
                const int64_t i = base + lane;
                const float v1 = x1[o_rows * 768 + i];
                const float t0 = v1 * v1;
                t1_lanes[lane] = t1_lanes[lane] + (t0);
            }
        }
        for (int width = 4; width; width /= 2)
            for (int lane = 0; lane < width; ++lane) t1_lanes[lane] = t1_lanes[lane] + (t1_lanes[lane + width]);
        const float t1 = t1_lanes[0] / (float)inner_size;
        const float t2 = t1 + 1e-06f;
        const float t3 = 1.0f / std::sqrt(t2);
        #pragma omp simd
        for (int64_t i = 0; i < cols; ++i) {
            const float v0 = x0[i];
            const float v1 = x1[o_rows * 768 + i];
            const float t4 = v1 * t3;
            const float t5 = v0 * t4;
            y0[o_rows * 768 + i] = t5;
        }
    }
}
