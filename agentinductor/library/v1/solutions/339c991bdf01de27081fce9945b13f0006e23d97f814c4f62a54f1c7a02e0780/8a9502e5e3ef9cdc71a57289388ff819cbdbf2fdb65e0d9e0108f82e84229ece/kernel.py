"""layer_norm over rows=any, cols=4096; schedule: triton rows rows=2 block=4096 warps=16

Computes

    def run(x0, x1, x2):
        # x0: bfloat16 (cols)
        # x1: bfloat16 (rows, cols)
        # x2: bfloat16 (cols)
        t0 = x1.to(torch.float32)                           # float32 (rows, cols)
        t1 = t0.mean(-1, keepdim=True)                      # float32 (rows)
        t2 = t0 - t1                                        # float32 (rows, cols)
        t3 = torch.var(t0, -1, correction=0, keepdim=True)  # float32 (rows)
        t4 = t3 + 1e-05                                     # float32 (rows)
        t5 = torch.rsqrt(t4)                                # float32 (rows)
        t6 = t2 * t5                                        # float32 (rows, cols)
        t7 = t6 * x2                                        # float32 (rows, cols)
        t8 = x0 + t7                                        # float32 (rows, cols)
        t9 = t8.to(torch.bfloat16)                          # bfloat16 (rows, cols)
        # y0: bfloat16 (rows, cols)
        return (t9,)
"""

import triton
import triton.language as tl


@triton.jit
def kernel(x0, x1, x2, y0, rows, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    tile = tl.program_id(0)
    row = tl.cast(tile, tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    alive = row < rows
    col = tl.arange(0, BLOCK)[None, :]
    x1_row = x1 + row * 4096
    v1 = tl.load(x1_row + col, mask=alive, other=0.0).to(tl.float32)
    t1 = tl.sum(v1, 1, keep_dims=True) / 4096.0
    t3_centred = v1 - t1
    t3 = tl.sum(t3_centred * t3_centred, 1, keep_dims=True) / 4096.0
    v0 = tl.load(x0 + col, eviction_policy="evict_last").to(tl.float32)
    t2 = v1 - t1
    t4 = t3 + 1e-05
    t5 = tl.rsqrt(t4)
    t6 = t2 * t5
    v2 = tl.load(x2 + col, eviction_policy="evict_last").to(tl.float32)
    t7 = t6 * v2
    t8 = v0 + t7
    y0_row = y0 + row * 4096
    tl.store(y0_row + col, t8, mask=alive)


def run(x0, x1, x2, y0):
    rows = x1.shape[0]
    grid = (((rows + 1) // 2),)
    kernel[grid](x0, x1, x2, y0, rows, ROWS=2, BLOCK=4096, num_warps=16, num_stages=1)
