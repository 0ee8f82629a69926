"""What each torch operator computes, as data: FLOPs for an element of its result or of its operand, or none.

Names are without namespace, overload and the ``_`` of in-place variants. One multiply-add is two FLOPs, a
transcendental function eight, as for ONNX (:mod:`placewright.capture.onnx_flops`). Operators that have formulas of
their own are in :mod:`placewright.capture.torch_formulas`; an operator that is nowhere is *unknown*: it counts one FLOP
an element of its largest operand, and whoever captures is told.
"""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["COUNTED", "CUBIC", "MOVES", "OF_INPUT", "PER_OUTPUT", "READ_ROWS", "SORTS", "base_name", "known_kind"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


COUNTED = _words(
    "addbmm addmm _addmm_activation addmv addr avg_pool1d avg_pool2d avg_pool3d baddbmm bilinear bmm cdist "
    "_cdist_forward chain_matmul conv1d conv2d conv3d conv_depthwise3d conv_tbc conv_transpose1d "
    "conv_transpose2d conv_transpose3d _convolution convolution convolution_backward "
    "convolution_overrideable cudnn_convolution cudnn_convolution_relu deform_conv2d dot "
    "_dyn_quant_matmul_4bit _efficient_attention_backward _efficient_attention_forward einsum "
    "_euclidean_dist _fft_c2c _fft_c2r fft_fft fft_fft2 fft_fftn fft_hfft fft_hfft2 fft_hfftn fft_ifft "
    "fft_ifft2 fft_ifftn fft_ihfft fft_ihfft2 fft_ihfftn fft_irfft fft_irfft2 fft_irfftn _fft_r2c fft_rfft "
    "fft_rfft2 fft_rfftn _flash_attention_backward _flash_attention_forward flex_attention "
    "flex_attention_backward ger _grouped_mm grouped_mm gru gru_cell inner _int_mm istft kron "
    "linalg_matmul linalg_multi_dot linalg_vecdot linear linear_backward lp_pool1d lp_pool2d lstm "
    "lstm_cell matmul max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d "
    "max_pool3d_with_indices mkldnn_convolution mkldnn_linear mm multi_head_attention_forward mv "
    "_native_multi_head_attention outer pdist _pdist_forward pow rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell "
    "scaled_dot_product_attention _scaled_dot_product_attention_math _scaled_dot_product_cudnn_attention "
    "_scaled_dot_product_cudnn_attention_backward _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_efficient_attention_backward _scaled_dot_product_flash_attention "
    "_scaled_dot_product_flash_attention_backward _scaled_dot_product_flash_attention_for_cpu "
    "_scaled_grouped_mm _scaled_mm _slow_conv2d_forward slow_conv3d stft tensordot thnn_conv2d "
    "_transformer_encoder_layer_fwd _trilinear vdot _weight_int4pack_mm _weight_int4pack_mm_for_cpu "
    "_weight_int8pack_mm"
)
"""Matrix products, convolutions, attention, pools, transforms and distances: by torch's formulas, or ours."""

MOVES = _words(
    "adjoint alias alpha_dropout arange argwhere as_strided as_strided_scatter _assert_async "
    "_assert_scalar _assert_tensor_metadata atleast_1d atleast_2d atleast_3d bfloat16 block_diag bool "
    "broadcast_tensors broadcast_to cartesian_prod cat channel_shuffle chunk clone col2im column_stack "
    "combinations complex concat concatenate conj constant_pad_nd contiguous copy cpu cuda data detach "
    "diag diag_embed diagonal diagonal_scatter dim double dropout dsplit dstack embedding "
    "_embedding_bag_dense_backward embedding_dense_backward empty empty_like empty_permuted empty_strided "
    "expand expand_as eye feature_dropout fft_fftfreq fft_fftshift fft_ifftshift fft_rfftfreq fill flatten "
    "flip fliplr flipud float fold full full_like _functional_assert_async gather getitem half hsplit "
    "hstack im2col imag index index_copy index_fill index_put index_select int is_nonzero item lift "
    "lift_fresh lift_fresh_copy linspace _local_scalar_dense logspace long mH mT _make_dep_token "
    "masked_fill masked_scatter masked_select matrix_H max_unpool1d max_unpool2d max_unpool3d meshgrid "
    "moveaxis movedim narrow native_channel_shuffle _nested_tensor_from_mask new_empty new_empty_strided "
    "new_full new_ones new_zeros nonzero nonzero_static numel numpy_T one_hot ones ones_like "
    "_pack_padded_sequence pad _pad_packed_sequence pad_sequence permute _pin_memory pin_memory "
    "pixel_shuffle pixel_unshuffle positive put ravel real record_stream reflection_pad1d reflection_pad2d "
    "reflection_pad3d repeat repeat_interleave replication_pad1d replication_pad2d replication_pad3d "
    "reshape _reshape_alias reshape_as resize resize_as resolve_conj resolve_neg roll rot90 row_stack "
    "scalar_tensor scatter select select_backward select_scatter set size slice slice_backward "
    "slice_scatter split split_with_sizes squeeze _stack stack storage_offset swapaxes swapdims "
    "sym_constrain_range sym_constrain_range_for_size sym_is_contiguous sym_numel sym_size "
    "sym_storage_offset sym_stride t take take_along_dim tensor tensor_split tile to _to_copy transpose "
    "tril tril_indices triu triu_indices type_as unbind unflatten unfold unfold_backward unsafe_chunk "
    "_unsafe_index _unsafe_index_put unsafe_split unsafe_split_with_sizes _unsafe_view unsqueeze "
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
    "_upsample_nearest_exact2d _upsample_nearest_exact3d view view_as view_as_complex view_as_real vsplit "
    "vstack where wrap_with_set_grad_enabled zero zeros zeros_like"
)
"""Operators that only move data, or nothing."""

READ_ROWS = _words("embedding gather index index_select take take_along_dim _unsafe_index")
"""Operators that read as much of their first argument as they return."""

_ONE = _words(
    "abs absolute add __and__ bernoulli bitwise_and bitwise_left_shift bitwise_not bitwise_or "
    "bitwise_right_shift bitwise_xor bucketize ceil clamp clamp_max clamp_min clip conj_physical copysign "
    "deg2rad dequantize eq equal fix floor fmax fmin frac frexp gcd ge greater greater_equal gt hardshrink "
    "hardtanh hardtanh_backward heaviside isclose isfinite isin isinf isnan isneginf isposinf isreal lcm "
    "ldexp le leaky_relu leaky_relu_backward less less_equal logical_and logical_not logical_or "
    "logical_xor __lshift__ lt _masked_scale masked_scatter_backward maximum minimum mul multiply "
    "nan_to_num native_dropout native_dropout_backward ne neg negative nextafter not_equal __or__ prelu "
    "_prelu_kernel rad2deg relu relu6 round rrelu rrelu_with_noise __rshift__ rsub searchsorted sgn sign "
    "signbit softshrink square sub subtract threshold threshold_backward trunc __xor__"
)
_TWO = _words(
    "addcdiv addcmul clamp_backward dequantize_affine dequantize_per_channel dequantize_per_tensor div "
    "divide fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine "
    "fake_quantize_per_tensor_affine_cachemask floor_divide fmod glu_jvp hardsigmoid hardsigmoid_backward "
    "hardswish hardswish_backward hypot l1_loss l1_loss_backward masked_softmax_backward mse_loss "
    "mse_loss_backward polar quantize_affine quantize_per_channel quantize_per_tensor reciprocal remainder "
    "rsqrt softsign sqrt true_divide"
)
_THREE = _words(
    "affine_grid_generator batch_norm _batch_norm_impl_index batch_norm_inference _batch_norm_no_update "
    "_batch_norm_with_update choose_qparams cross cudnn_batch_norm huber_loss huber_loss_backward lerp "
    "linalg_cross native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional "
    "_native_batch_norm_legit_no_training sigmoid_backward smooth_l1_loss smooth_l1_loss_backward "
    "tanh_backward"
)
_EIGHT = _words(
    "acos acosh angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh "
    "bartlett_window batch_norm_backward binary_cross_entropy binary_cross_entropy_with_logits binomial "
    "blackman_window cauchy celu cos cosh cosine_embedding_loss cudnn_grid_sampler digamma elu "
    "elu_backward entr erf erfc erfcx erfinv exp exp2 expit expm1 exponential float_power gammaln "
    "gelu_backward geometric grid_sampler grid_sampler_2d group_norm hamming_window hann_window "
    "hinge_embedding_loss i0 i0e i1 i1e igamma igammac instance_norm kaiser_window kl_div layer_norm "
    "lgamma local_response_norm log log10 log1p log2 log_ndtr log_normal log_sigmoid log_sigmoid_backward "
    "log_sigmoid_forward logaddexp logaddexp2 logit margin_ranking_loss mish mish_backward "
    "multi_margin_loss multilabel_margin_loss multinomial mvlgamma native_batch_norm_backward "
    "native_group_norm native_group_norm_backward native_layer_norm native_layer_norm_backward ndtr ndtri "
    "normal poisson poisson_nll_loss polygamma psi rand rand_like randint randint_like randn "
    "randn_like random randperm selu sigmoid silu_backward sin sinc sinh soft_margin_loss softplus "
    "softplus_backward special_entr special_erfcx special_expit special_i0e special_i1 special_log_ndtr "
    "special_ndtr special_xlog1py tan tanh triplet_margin_loss uniform upsample_bilinear2d "
    "_upsample_bilinear2d_aa xlog1py xlogy"
)

PER_OUTPUT: dict[str, int] = {
    **dict.fromkeys(sorted(_ONE), 1),
    **dict.fromkeys(sorted(_TWO), 2),
    **dict.fromkeys(sorted(_THREE), 3),
    **dict.fromkeys(sorted(_EIGHT), 8),
    **dict.fromkeys(("upsample_linear1d",), 4),
    **dict.fromkeys(("softmax", "_softmax", "_safe_softmax", "log_softmax", "_log_softmax", "softmin"), 5),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data", "gumbel_softmax"), 5),
    **dict.fromkeys(
        ("rms_norm", "_fused_rms_norm", "normalize", "_weight_norm", "weight_norm", "_weight_norm_interface"), 5
    ),
    **dict.fromkeys(("silu", "glu"), 10),
    **dict.fromkeys(("gelu",), 12),
    **dict.fromkeys(("upsample_trilinear3d", "grid_sampler_3d"), 16),
    **dict.fromkeys(("upsample_bicubic2d", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa"), 32),
    **dict.fromkeys(("roi_align", "roi_pool", "ps_roi_align"), 32),
    **dict.fromkeys(("_thnn_fused_lstm_cell", "_thnn_fused_gru_cell"), 40),
}
"""FLOPs for each element of the first result."""

OF_INPUT: dict[str, int] = {
    **dict.fromkeys(
        sorted(
            _words(
                "adaptive_avg_pool1d _adaptive_avg_pool2d adaptive_avg_pool2d "
                "_adaptive_avg_pool2d_backward _adaptive_avg_pool3d adaptive_avg_pool3d "
                "_adaptive_avg_pool3d_backward adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d "
                "all allclose amax amin aminmax any argmax argmin avg_pool2d_backward avg_pool3d_backward "
                "bincount count_nonzero cummax cummin cumprod cumsum cumulative_trapezoid diag_sum diff "
                "_embedding_bag embedding_bag _embedding_bag_forward_only gradient histc index_add "
                "index_reduce max max_pool2d_with_indices_backward max_pool3d_with_indices_backward mean "
                "min nanmean nansum nll_loss nll_loss2d nll_loss2d_backward nll_loss2d_forward "
                "nll_loss_backward nll_loss_forward nll_loss_nd nms prod scatter_add scatter_reduce "
                "segment_reduce sum sum_to_size trace trapezoid trapz unique_consecutive"
            )
        ),
        1,
    ),
    **dict.fromkeys(
        ("norm", "linalg_vector_norm", "linalg_norm", "frobenius_norm", "renorm", "dist", "pairwise_distance"), 2
    ),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean", "cosine_similarity"), 4),
    **dict.fromkeys(("logsumexp", "logcumsumexp", "cross_entropy_loss", "ctc_loss"), 9),
}
"""Reductions and scatters: FLOPs for each element of the first input."""

SORTS = _words(
    "argsort kthvalue median mode msort nanmedian nanquantile quantile sort topk _unique unique _unique2 unique_dim"
)
"""log2(n) comparisons for each of the n elements of the first input."""

CUBIC: dict[str, float] = {
    **dict.fromkeys(("linalg_cholesky", "linalg_cholesky_ex", "cholesky"), 1 / 3),
    **dict.fromkeys(("cholesky_solve", "linalg_solve_triangular", "triangular_solve", "cholesky_inverse"), 1.0),
    **dict.fromkeys(("linalg_det", "_linalg_det", "linalg_slogdet", "_linalg_slogdet", "logdet", "det"), 2 / 3),
    **dict.fromkeys(
        ("linalg_lu", "linalg_lu_factor", "linalg_lu_factor_ex", "linalg_solve", "_linalg_solve_ex"), 2 / 3
    ),
    **dict.fromkeys(("linalg_inv", "linalg_inv_ex", "inverse"), 2.0),
    **dict.fromkeys(("linalg_qr", "linalg_householder_product"), 4 / 3),
    **dict.fromkeys(("linalg_eigh", "_linalg_eigh", "linalg_eigvalsh"), 9.0),
    **dict.fromkeys(("linalg_svd", "_linalg_svd", "svd", "linalg_svdvals", "linalg_pinv"), 21.0),
    **dict.fromkeys(("linalg_eig", "linalg_eigvals", "linalg_matrix_exp", "matrix_exp"), 25.0),
    **dict.fromkeys(("linalg_matrix_power", "matrix_power"), 2.0),
}
"""Dense decompositions: FLOPs over the cube of a matrix's side (Golub and Van Loan, Matrix Computations)."""


_TABLES: tuple[Collection[str], ...] = (COUNTED, MOVES, PER_OUTPUT, OF_INPUT, SORTS, CUBIC)


def base_name(name: str) -> str:
    """Name under which an operator stands in these tables.

    Examples
    --------
    The derivative of an operator without an entry of its own has that of the operator.

    >>> base_name("relu_"), base_name("permute_copy"), base_name("__and__"), base_name("index_copy_")
    ('relu', 'permute', '__and__', 'index_copy')
    >>> base_name("_foreach_exp"), base_name("special_log1p"), base_name("glu_backward")
    ('exp', 'log1p', 'glu')
    """
    if not name.endswith("__"):
        name = name.removesuffix("_")
    for shorter in (
        name,
        name.removeprefix("_foreach_"),
        name.removeprefix("special_"),
        name.removesuffix("_copy"),
        name.removesuffix("_backward"),
    ):
        if any(shorter in table for table in _TABLES):
            return shorter
    return name


def known_kind(kind: str) -> bool:
    """Whether the work of a kind (``aten.linear``, ``sym.mul``) is counted by a rule made for it.

    Examples
    --------
    >>> known_kind("aten.relu_"), known_kind("mylib.my_attention")
    (True, False)
    """
    namespace, _, name = kind.rpartition(".")
    if namespace in ("sym", "higher_order"):
        return True
    return any(base_name(name) in table for table in _TABLES)
