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
    const float* __restrict x2 = (const float*)tensors[2];
    const float* __restrict x3 = (const float*)tensors[3];
    float* __restrict y0 = (float*)tensors[4];
    const int64_t outer_size = rows;
    const int64_t inner_size = cols;
    #pragma omp parallel for schedule(static) if (outer_size * inner_size >= 16384)
    for (int64_t outer = 0; outer < outer_size; ++outer) {
        const int64_t o_rows = outer;
        alignas(64) float kept_t0[768];
        alignas(64) float t1_lanes[16];
        for (int lane = 0; lane < 16; ++lane) t1_lanes[lane] = 0.0f;
        for (int64_t base = 0; base < cols / 16 * 16; base += 16) {
            #pragma omp simd
            for (int lane = 0; lane < 16; ++lane) {
                const int64_t i = base + lane;
                const float v1 = x1[o_rows * 768 + i];
                const float v2 = x2[o_rows * 768 + i];
                const float t0 = v1 + v2;
                kept_t0[i] = t0;
                t1_lanes[lane] = t1_lanes[lane] + (t0);
            }
        }
        for (int width = 8; width; width /= 2)
            for (int lane = 0; lane < width; ++lane) t1_lanes[lane] = t1_lanes[lane] + (t1_lanes[lane + width]);
        const float t1 = t1_lanes[0] / (float)inner_size;
        const float t3_mean = t1;
        alignas(64) float t3_lanes[16];
        for (int lane = 0; lane < 16; ++lane) t3_lanes[lane] = 0.0f;
        for (int64_t base = 0; base < cols / 16 * 16; base += 16) {
            #pragma omp simd
            for (int lane = 0; lane < 16; ++lane) {
                const int64_t i = base + lane;
                const float t0_kept = kept_t0[i];
                t3_lanes[lane] = t3_lanes[lane] + ((t0_kept - t3_mean) * (t0_kept - t3_mean));
            }
        }
        for (int width = 8; width; width /= 2)
            for (int lane = 0; lane < width; ++lane) t3_lanes[lane] = t3_lanes[lane] + (t3_lanes[lane + width]);
        const float t3 = t3_lanes[0] / (float)(inner_size > 0 ? inner_size - 0 : 0);
        const float t4 = t3 + 1e-05f;
        const float t5 = 1.0f / std::sqrt(t4);
        #pragma omp simd
        for (int64_t i = 0; i < cols; ++i) {
            const float v0 = x0[i];
            const float t0_kept = kept_t0[i];
            const float t2 = t0_kept - t1;
            const float t6 = t2 * t5;
            const float t7 = v0 * t6;
            const float v3 = x3[i];
            const float t8 = t7 + v3;
            y0[o_rows * 768 + i] = t8;
        }
    }
}
