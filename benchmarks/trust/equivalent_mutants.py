"""Mutants that no result shows, and why: where one of these is alive, it counts neither as killed nor as alive."""

AT_ONCE = "how much is computed at a time, which no result depends on"
CHEAPER = "which of two ways to the same numbers is taken"
MORE_ROOM = "a table or a buffer with room that is not used"

# (file, a part of "the line | the change"): reason
EQUIVALENT: dict[tuple[str, str], str] = {
    ("curvature/eigenbasis.py", "across, along = outputs * (len(rows)"): CHEAPER,
    ("curvature/eigenbasis.py", "if across > along:"): CHEAPER,
    ("curvature/eigenbasis.py", "for part in picked.split("): AT_ONCE,
    ("curvature/eigenbasis.py", "for part in vectors.split(max(1, 2**22"): AT_ONCE,
    ("curvature/eigenbasis.py", "PART: ClassVar[int] = 2**17"): AT_ONCE,
    ("curvature/eigenbasis.py", "step = max(1, self.PART // "): AT_ONCE,
    ("curvature/eigenbasis.py", "if gradient_vectors.shape[1] > input_vectors.shape[1]:"): CHEAPER,
    ("curvature/eigenbasis.py", "by_matrix_product = "): CHEAPER,
    ("curvature/eigenbasis.py", "pairs_a = input_vectors.shape[1] * (input_vectors.shape[1] + 1)"): CHEAPER,
    ("curvature/eigenbasis.py", "step = max(1, 2**23 // max(count"): AT_ONCE,
    ("curvature/eigenbasis.py", "step = min(step, max(NARROWEST"): AT_ONCE,
    ("curvature/merge.py", "if a.inputs is not None and b.inputs is not None:"): "both fits have asked for the same",
    (
        "curvature/merge.py",
        "if a.positions is not None and b.positions is not None:",
    ): "both fits have asked for the same",
    ("fitting/per_example_gradients/outer.py", ".split(AT_ONCE)"): AT_ONCE,
    ("fitting/per_example_gradients/shared.py", "return selected(x[0], chosen).unsqueeze(0) if len(x) == 1"): CHEAPER,
    ("posteriors/batched_sampling.py", "most = max(1, LARGEST // (rows * columns))"): AT_ONCE,
    ("posteriors/full.py", "step = max(1, SCRATCH // "): AT_ONCE,
    (
        "posteriors/inf/core.py",
        "count = (1 + math.isqrt(1 + 8 * len(core))) // 2 | 1 → 2",
    ): "the half more is rounded down",
    ("posteriors/inf/jacobians.py", "parts = max(1, -(-len(inputs) * each // SCRATCH))"): AT_ONCE,
    ("posteriors/inf/output_rows.py", "each = max(rank, kept) * num_columns"): AT_ONCE,
    ("posteriors/inf/output_rows.py", "split_unless_exporting(inputs, max(1, SCRATCH // each))"): AT_ONCE,
    (
        "posteriors/inf/posterior.py",
        "width = (1 + math.isqrt(1 + 8 * len(core))) // 2 | 1 → 2",
    ): "the half more is rounded down",
    ("posteriors/inf/posterior.py", "return (u @ inner) @ v if v.shape[0]"): CHEAPER,
    ("posteriors/inf/posterior.py", "inner = u @ (x @ v) if v.shape[1]"): CHEAPER,
    ("posteriors/inf/sampling.py", "step = min(num_rows, max(1, PART // "): AT_ONCE,
    (
        "posteriors/log_bytes.py",
        "step = (high - low) / 254 or 1e-6 | 1e-06 → 2e-06",
    ): "any step will do where all are equal",
    ("posteriors/log_bytes.py", "torch.arange(-1, 255"): MORE_ROOM,
    (
        "priors/base.py",
        "if self.vectors is not None and self.values is not None: | self.vectors is not None and",
    ): "a prior has both or none",
    ("posteriors/row_blocks.py", "if self.stiffness > STIFF_GRAM: | self.stiffness > STIFF_GRAM"): CHEAPER,
    ("posteriors/row_blocks.py", "step = max(1, 2**22 // "): AT_ONCE,
    ("posteriors/row_blocks.py", "step = max(1, PART // "): AT_ONCE,
    ("posteriors/row_blocks.py", ".split(PART))  # whole"): AT_ONCE,
}
