// gelu over numel=any; schedule: cuda tile rows=1 block=4096 warps=4 vector=8
//
// Computes
//
//     def run(x0):
//         # x0: bfloat16 (numel)
//         t0 = x0.to(torch.float32)     # float32 (numel)
//         t1 = t0 * 0.7071067811865476  # float32 (numel)
//         t2 = torch.erf(t1)            # float32 (numel)
//         t3 = t2 + 1.0                 # float32 (numel)
//         t4 = t0 * 0.5                 # float32 (numel)
//         t5 = t3 * t4                  # float32 (numel)
//         t6 = t5.to(torch.bfloat16)    # bfloat16 (numel)
//         # y0: bfloat16 (numel)
//         return (t6,)
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

extern "C" __global__ void __launch_bounds__(128) kernel(const __nv_bfloat16* __restrict__ x0, __nv_bfloat16* __restrict__ y0, const long long numel) {
    const int lane = threadIdx.x;
    const long long start = (long long)blockIdx.x * 4096;
    const bool aligned = ((unsigned long long)x0 | (unsigned long long)y0) % 16 == 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        const long long col0 = start + k * 1024 + lane * 8;
        if (col0 >= numel) break;
        const auto x0_pack = read<8>(x0 + col0, aligned);
        Pack<__nv_bfloat16, 8> y0_pack;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const float v0 = __bfloat162float(x0_pack.at[j]);
            const float t1 = v0 * 0.7071067811865476f;
            const float t2 = erff(t1);
            const float t3 = t2 + 1.0f;
            const float t4 = v0 * 0.5f;
            const float t5 = t3 * t4;
            y0_pack.at[j] = __float2bfloat16_rn(t5);
        }
        write<8>(y0 + col0, y0_pack, aligned);
    }
}
