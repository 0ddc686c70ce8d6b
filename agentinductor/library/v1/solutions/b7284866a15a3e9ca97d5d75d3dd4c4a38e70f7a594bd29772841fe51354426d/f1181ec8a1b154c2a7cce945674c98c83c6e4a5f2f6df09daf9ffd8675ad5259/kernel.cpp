#include <cmath>
#include <cstdint>
#include <limits>

#define INLINE static inline __attribute__((always_inline))

INLINE uint32_t bits_of(float v) { return __builtin_bit_cast(uint32_t, v); }
INLINE float float_of(uint32_t v) { return __builtin_bit_cast(float, v); }

template <typename T> INLINE T max_of(T a, T b) { return (a > b) | (a != a) ? a : b; }  // NaN wins
INLINE float reduced_exp(float r) {  // exp(r) - 1 for |r| <= log(2) / 2
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return p * (r * r) + r;
}
INLINE float power_of_2(int32_t n) { return float_of((uint32_t)(n + 127) << 23); }
INLINE float exp_of(float x) {
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    const float shifted = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: rounds to an integer, held in the low bits
    const float n = shifted - 12582912.0f;
    const float r = n * -1.42860677e-6f + (n * -0.693145752f + x);
    const int32_t k = (int32_t)(bits_of(shifted) - 0x4b400000u), half = k >> 1;
    return ((reduced_exp(r) + 1.0f) * power_of_2(half)) * power_of_2(k - half);
}

extern "C" void kernel(void* const* tensors, const int64_t* sizes, const int64_t* strides) {
    const int64_t rows = sizes[0];
    const int64_t cols = 512;
    const float* __restrict x0 = (const float*)tensors[0];
    float* __restrict y0 = (float*)tensors[1];
    const int64_t outer_size = rows;
    const int64_t inner_size = cols;
    #pragma omp parallel for schedule(static) if (outer_size * inner_size >= 16384)
    for (int64_t outer = 0; outer < outer_size; ++outer) {
        const int64_t o_rows = outer;
        alignas(64) float kept_t2[512];
        alignas(64) float t0_lanes[64];
        for (int lane = 0; lane < 64; ++lane) t0_lanes[lane] = -std::numeric_limits<float>::infinity();
        for (int64_t base = 0; base < cols / 64 * 64; base += 64) {
            #pragma omp simd
            for (int lane = 0; lane < 64; ++lane) {
                const int64_t i = base + lane;
                const float v0 = x0[o_rows * 512 + i];
                t0_lanes[lane] = max_of<float>(t0_lanes[lane], v0);
            }
        }
        for (int width = 32; width; width /= 2)
            for (int lane = 0; lane < width; ++lane) t0_lanes[lane] = max_of<float>(t0_lanes[lane], t0_lanes[lane + width]);
        const float t0 = t0_lanes[0];
        alignas(64) float t3_lanes[64];
        for (int lane = 0; lane < 64; ++lane) t3_lanes[lane] = 0.0f;
        for (int64_t base = 0; base < cols / 64 * 64; base += 64) {
            #pragma omp simd
            for (int lane = 0; lane < 64; ++lane) {
                const int64_t i = base + lane;
                const float v0 = x0[o_rows * 512 + i];
                const float t1 = v0 - t0;
                const float t2 = exp_of(t1);
                kept_t2[i] = t2;
                t3_lanes[lane] = t3_lanes[lane] + (t2);
            }
        }
        for (int width = 32; width; width /= 2)
            for (int lane = 0; lane < width; ++lane) t3_lanes[lane] = t3_lanes[lane] + (t3_lanes[lane + width]);
        const float t3 = t3_lanes[0];
        #pragma omp simd
        for (int64_t i = 0; i < cols; ++i) {
            const float t2_kept = kept_t2[i];
            const float t4 = t2_kept / t3;
            y0[o_rows * 512 + i] = t4;
        }
    }
}
