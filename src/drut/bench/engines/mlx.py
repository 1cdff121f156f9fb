"""MLX-LM: on macOS unchanged; on Linux on CPUs, with an optimized BLAS."""

from __future__ import annotations

import sys

from drut.bench.engines import where
from drut.bench.engines.ends import bias_against_ends
from drut.bench.engines.engine import CannotRunError, EngineFiles, Launch, Options
from drut.bench.engines.weights import of_folder
from drut.home import home


class Mlx:
    """`mlx_lm.server`."""

    name = "mlx"
    title = "MLX-LM"
    verified = True  # on Linux; not on macOS

    def launch(self, files: EngineFiles, options: Options, port: int) -> Launch:
        """Launches on the folder made by mlx_lm.convert; on Linux fp32 weights are fastest."""
        if files.mlx is None:
            raise CannotRunError(f"MLX reads folders made by mlx_lm.convert; {files.name} has none")
        python = where.python("mlx", "mlx_lm.server", "make peers ARGS=mlx, or pip install mlx-lm")
        hub = home() / "bench" / "no-hub"  # it lists this folder, and exits if it does not exist
        hub.mkdir(parents=True, exist_ok=True)
        env = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(hub)}
        remarks = ["no ignore_eos: a logit bias prevents the end of sequence", "prompts are text, one per request"]
        if sys.platform == "linux":
            env |= {"OMP_NUM_THREADS": str(options.threads), "OPENBLAS_NUM_THREADS": str(options.threads)}
            blas = where.library("libopenblas.so.0")
            if blas is not None:
                # OpenBLAS lies in the folder of its own libraries, which the system may lack.
                env |= {"LD_PRELOAD": str(blas), "LD_LIBRARY_PATH": f"{blas.parent}:{blas.parent.parent}"}
            remarks.append("it is not made for CPUs" + ("" if blas else "; slower without OpenBLAS"))
        argv = (str(python), "-m", "mlx_lm.server", "--model", str(files.mlx), "--host", "127.0.0.1",
                "--port", str(port), "--decode-concurrency", str(options.sequences),
                "--prompt-concurrency", str(options.sequences), *options.flags)
        return Launch(f"http://127.0.0.1:{port}", "default_model", argv, env, ready="completion",
                      exact={"logit_bias": bias_against_ends(files)}, token_ids=False,
                      versions=where.versions(python, ("mlx", "mlx-lm")), weights=of_folder(files.mlx),
                      remarks=tuple(remarks))
