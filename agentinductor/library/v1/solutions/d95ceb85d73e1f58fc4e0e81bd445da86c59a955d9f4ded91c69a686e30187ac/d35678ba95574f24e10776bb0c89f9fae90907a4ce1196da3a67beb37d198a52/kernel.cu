// add_layer_norm over rows=any, cols=1024; schedule: cuda rows rows=1 block=1024 warps=2 vector=8
//
// Computes
//
//     def run(x0, x1, x2, x3):
//         # x0: bfloat16 (rows, cols)
//         # x1: bfloat16 (rows, cols)
//         # x2: bfloat16 (cols)
//         # x3: bfloat16 (cols)
//         t0 = x0 + x1                                        # bfloat16 (rows, cols)
//         t1 = t0.to(torch.float32)                           # float32 (rows, cols)
//         t2 = t1.mean(-1, keepdim=True)                      # float32 (rows)
//         t3 = t1 - t2                                        # float32 (rows, cols)
//         t4 = torch.var(t1, -1, correction=0, keepdim=True)  # float32 (rows)
//         t5 = t4 + 1e-12                                     # float32 (rows)
//         t6 = torch.rsqrt(t5)                                # float32 (rows)
//         t7 = t3 * t6                                        # float32 (rows, cols)
//         t8 = t7 * x2                                        # float32 (rows, cols)
//         t9 = t8 + x3                                        # float32 (rows, cols)
//         t10 = t9.to(torch.bfloat16)                         # bfloat16 (rows, cols)
//         # y0: bfloat16 (rows, cols)
//         return (t10,)
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

extern "C" __global__ void __launch_bounds__(64) kernel(const __nv_bfloat16* __restrict__ x0, const __nv_bfloat16* __restrict__ x1, const __nv_bfloat16* __restrict__ x2, const __nv_bfloat16* __restrict__ x3, __nv_bfloat16* __restrict__ y0, const long long rows) {
    const int lane = threadIdx.x;
    const long long row = (long long)blockIdx.x;
    const bool aligned = ((unsigned long long)x0 | (unsigned long long)x1 | (unsigned long long)x2 | (unsigned long long)x3 | (unsigned long long)y0) % 16 == 0;
    Pack<__nv_bfloat16, 8> v0_held[2];
    Pack<__nv_bfloat16, 8> v1_held[2];
    Pack<__nv_bfloat16, 8> v2_held[2];
    Pack<__nv_bfloat16, 8> v3_held[2];
    const __nv_bfloat16* const x0_row = x0 + (long long)row * 1024LL;
    const __nv_bfloat16* const x1_row = x1 + (long long)row * 1024LL;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
        const int col0 = k * 512 + lane * 8;
        v0_held[k] = read<8>(x0_row + col0, aligned);
        v1_held[k] = read<8>(x1_row + col0, aligned);
        v2_held[k] = read<8>(x2 + col0, aligned);
        v3_held[k] = read<8>(x3 + col0, aligned);
    }
    float t2_acc = 0.0f;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const float v0 = __bfloat162float(v0_held[k].at[j]);
            const float v1 = __bfloat162float(v1_held[k].at[j]);
            const float t0 = v0 + v1;
            t2_acc = t2_acc + t0;
        }
    }
    const float t2 = reduce<2>(t2_acc, Sum()) / 1024.0f;
    float t4_squares = 0.0f;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const float v0 = __bfloat162float(v0_held[k].at[j]);
            const float v1 = __bfloat162float(v1_held[k].at[j]);
            const float t0 = v0 + v1;
            const float t4_apart = t0 - t2;
            t4_squares += t4_apart * t4_apart;
        }
    }
    const float t4 = reduce<2>(t4_squares, Sum()) / (1024.0f - 0.0f);
    const float t5 = t4 + 1e-12f;
    const float t6 = rsqrtf(t5);
    __nv_bfloat16* const y0_row = y0 + (long long)row * 1024LL;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
        const int col0 = k * 512 + lane * 8;
        Pack<__nv_bfloat16, 8> y0_pack;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const float v0 = __bfloat162float(v0_held[k].at[j]);
            const float v1 = __bfloat162float(v1_held[k].at[j]);
            const float t0 = v0 + v1;
            const float t3 = t0 - t2;
            const float t7 = t3 * t6;
            const float v2 = __bfloat162float(v2_held[k].at[j]);
            const float t8 = t7 * v2;
            const float v3 = __bfloat162float(v3_held[k].at[j]);
            const float t9 = t8 + v3;
            y0_pack.at[j] = __float2bfloat16_rn(t9);
        }
        write<8>(y0_row + col0, y0_pack, aligned);
    }
}
