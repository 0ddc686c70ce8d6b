#include <cmath>
#include <cstdint>
#include <limits>

#define INLINE static inline __attribute__((always_inline))

INLINE uint32_t bits_of(float v) { return __builtin_bit_cast(uint32_t, v); }
INLINE float float_of(uint32_t v) { return __builtin_bit_cast(float, v); }

INLINE float from_bfloat16(uint16_t h) { return float_of((uint32_t)h << 16); }
INLINE uint16_t to_bfloat16(float v) {  // to nearest, ties to even
    const uint32_t u = bits_of(v);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return (uint16_t)(v != v ? ((u >> 16) | 0x40u) : rounded);
}

extern "C" void kernel(void* const* tensors, const int64_t* sizes, const int64_t* strides) {
    const int64_t rows = sizes[0];
    const int64_t cols = 256;
    const uint16_t* __restrict x0 = (const uint16_t*)tensors[0];
    const uint16_t* __restrict x1 = (const uint16_t*)tensors[1];
    uint16_t* __restrict y0 = (uint16_t*)tensors[2];
    const int64_t outer_size = rows;
    const int64_t inner_size = cols;
    #pragma omp parallel for schedule(static) if (outer_size * inner_size >= 16384)
    for (int64_t outer = 0; outer < outer_size; ++outer) {
        const int64_t o_rows = outer;
        alignas(64) float kept_v1[256];
        alignas(64) float t2_lanes[16];
        for (int lane = 0; lane < 16; ++lane) t2_lanes[lane] = 0.0f;
        for (int64_t base = 0; base < cols / 16 * 16; base += 16) {
            #pragma omp simd
            for (int lane = 0; lane < 16; ++lane) {
                const int64_t i = base + lane;
                const float v1 = from_bfloat16(x1[o_rows * 256 + i]);
                const float t1 = v1 * v1;
                kept_v1[i] = v1;
                t2_lanes[lane] = t2_lanes[lane] + (t1);
            }
        }
        for (int width = 8; width; width /= 2)
            for (int lane = 0; lane < width; ++lane) t2_lanes[lane] = t2_lanes[lane] + (t2_lanes[lane + width]);
        const float t2 = t2_lanes[0] / (float)inner_size;
        const float t3 = t2 + 1e-06f;
        const float t4 = 1.0f / std::sqrt(t3);
        #pragma omp simd
        for (int64_t i = 0; i < cols; ++i) {
            const float v0 = from_bfloat16(x0[i]);
            const float v1_kept = kept_v1[i];
            const float t5 = v1_kept * t4;
            const float t7 = v0 * t5;
            y0[o_rows * 256 + i] = to_bfloat16(t7);
        }
    }
}
