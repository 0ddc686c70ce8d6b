template <int N> __device__ __forceinline__ float total(float v) {
    #pragma unroll
    for (int k = N; k; k /= 2) v += __shfl_xor_sync(0xffffffffu, v, k);
    return v;
}
extern "C" __global__ void __launch_bounds__(256) kernel(const float* x, float* y, long long n) {
    __shared__ float part[32];
    part[0] = total<16>(1.0f);
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
