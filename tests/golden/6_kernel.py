"""rms_norm over rows=any, cols=256; schedule: triton rows rows=1 block=256 warps=1

Computes

    def run(x0, x1):
        # x0: bfloat16 (cols)
        # x1: bfloat16 (rows, cols)
        t0 = x1.to(torch.float32)       # float32 (rows, cols)
        t1 = t0 * t0                    # float32 (rows, cols)
        t2 = t1.mean(-1, keepdim=True)  # float32 (rows)
        t3 = t2 + 1e-06                 # float32 (rows)
        t4 = torch.rsqrt(t3)            # float32 (rows)
        t5 = t0 * t4                    # float32 (rows, cols)
        t6 = t5.to(torch.bfloat16)      # bfloat16 (rows, cols)
        t7 = x0 * t6                    # bfloat16 (rows, cols)
        # y0: bfloat16 (rows, cols)
        return (t7,)
"""

import triton
import triton.language as tl


@triton.jit
def kernel(x0, x1, y0, BLOCK: tl.constexpr):
    tile = tl.program_id(0)
    row = tl.cast(tile, tl.int64)
    col = tl.arange(0, BLOCK)
    x1_row = x1 + row * 256
    v1 = tl.load(x1_row + col).to(tl.float32)
    t1 = v1 * v1
    t2 = tl.sum(t1, 0) / 256.0
    v0 = tl.load(x0 + col, eviction_policy="evict_last").to(tl.float32)
    t3 = t2 + 1e-06
    t4 = tl.rsqrt(t3)
    t5 = v1 * t4
    t7 = v0 * t5
    y0_row = y0 + row * 256
    tl.store(y0_row + col, t7)


def run(x0, x1, y0):
    rows = x1.shape[0]
    grid = (rows,)
    kernel[grid](x0, x1, y0, BLOCK=256, num_warps=1, num_stages=1)
