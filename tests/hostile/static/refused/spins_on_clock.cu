extern "C" __global__ void kernel(const float* x, float* y, long long n) {
    while (clock64() < 1000000) {}
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
