// gelu_bias_residual over rows=any, cols=4096; schedule: cuda tile rows=1 block=4096 warps=4 vector=8
//
// Computes
//
//     def run(x0, x1, x2):
//         # x0: bfloat16 (rows, cols)
//         # x1: bfloat16 (cols)
//         # x2: bfloat16 (rows, cols)
//         t0 = x0 + x1                  # bfloat16 (rows, cols)
//         t1 = t0.to(torch.float32)     # float32 (rows, cols)
//         t2 = t1 * 0.5                 # float32 (rows, cols)
//         t3 = t1 * 0.7071067811865476  # float32 (rows, cols)
//         t4 = torch.erf(t3)            # float32 (rows, cols)
//         t5 = t4 + 1.0                 # float32 (rows, cols)
//         t6 = t2 * t5                  # float32 (rows, cols)
//         t7 = t6.to(torch.bfloat16)    # bfloat16 (rows, cols)
//         t8 = t7 + x2                  # bfloat16 (rows, cols)
//         # y0: bfloat16 (rows, cols)
//         return (t8,)
#include <cuda_bf16.h>

template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T at[N]; };

// N neighbours at once; `aligned` says that the address is a multiple of 16 bytes (or of the pack's size)
template <int N, typename T>
__device__ __forceinline__ Pack<T, N> read(const T* p, bool aligned) {
    Pack<T, N> out;
    if (aligned) return *reinterpret_cast<const Pack<T, N>*>(p);
#pragma unroll
    for (int j = 0; j < N; ++j) out.at[j] = p[j];
    return out;
}

template <int N, typename T>
__device__ __forceinline__ void write(T* p, const Pack<T, N>& pack, bool aligned) {
    if (aligned) { *reinterpret_cast<Pack<T, N>*>(p) = pack; return; }
#pragma unroll
    for (int j = 0; j < N; ++j) p[j] = pack.at[j];
}

struct Sum { template <typename T> __device__ T operator()(T a, T b) const { return a + b; } };
struct Product { template <typename T> __device__ T operator()(T a, T b) const { return a * b; } };
struct Max { template <typename T> __device__ T operator()(T a, T b) const { return a > b || a != a ? a : b; } };  // NaN wins
struct Min { template <typename T> __device__ T operator()(T a, T b) const { return a < b || a != a ? a : b; } };

// Over a row's threads: WARPS whole warps. Always in the same order, so two runs agree to the last bit.
template <int WARPS, typename Op, typename T>
__device__ __forceinline__ T reduce(T value, Op op) {
#pragma unroll
    for (int distance = 16; distance > 0; distance >>= 1) value = op(value, __shfl_xor_sync(0xffffffffu, value, distance));
    if (WARPS > 1) {
        __shared__ T parts[WARPS];
        __syncthreads();  // whoever still reads an earlier reduction's parts
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
        __syncthreads();
        value = parts[0];
#pragma unroll
        for (int w = 1; w < WARPS; ++w) value = op(value, parts[w]);
    }
    return value;
}

extern "C" __global__ void __launch_bounds__(128) kernel(const __nv_bfloat16* __restrict__ x0, const __nv_bfloat16* __restrict__ x1, const __nv_bfloat16* __restrict__ x2, __nv_bfloat16* __restrict__ y0, const long long rows) {
    const int lane = threadIdx.x;
    const long long across = (4096 + 4095) / 4096;
    const long long row = blockIdx.x / across;
    const int start = (int)(blockIdx.x % across) * 4096;
    const bool aligned = ((unsigned long long)x0 | (unsigned long long)x1 | (unsigned long long)x2 | (unsigned long long)y0) % 16 == 0;
    Pack<__nv_bfloat16, 8> v0_held[4];
    Pack<__nv_bfloat16, 8> v2_held[4];
    const __nv_bfloat16* const x0_row = x0 + (long long)row * 4096LL;
    const __nv_bfloat16* const x2_row = x2 + (long long)row * 4096LL;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        const int col0 = start + k * 1024 + lane * 8;
        v0_held[k] = read<8>(x0_row + col0, aligned);
        v2_held[k] = read<8>(x2_row + col0, aligned);
    }
    __nv_bfloat16* const y0_row = y0 + (long long)row * 4096LL;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        const int col0 = start + k * 1024 + lane * 8;
        const auto x1_pack = read<8>(x1 + col0, aligned);
        Pack<__nv_bfloat16, 8> y0_pack;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const float v0 = __bfloat162float(v0_held[k].at[j]);
            const float v1 = __bfloat162float(x1_pack.at[j]);
            const float t0 = v0 + v1;
            const float t2 = t0 * 0.5f;
            const float t3 = t0 * 0.7071067811865476f;
            const float t4 = erff(t3);
            const float t5 = t4 + 1.0f;
            const float t6 = t2 * t5;
            const float v2 = __bfloat162float(v2_held[k].at[j]);
            const float t8 = t6 + v2;
            y0_pack.at[j] = __float2bfloat16_rn(t8);
        }
        write<8>(y0_row + col0, y0_pack, aligned);
    }
}
