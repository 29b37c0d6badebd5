"""Headers of safetensors files beside a config.json: read without tensors, they settle formats and count parameters."""
import json
import os

import pytest

from simulator.config.describe import describe_text
from simulator.config.huggingface.reader import read_config
from simulator.config.huggingface.tensor_files import LONGEST, Tensor, read_tensor_files
from simulator.config.huggingface.tensor_formats import decoder_parameters, matrices_of
from simulator.domain.deployment import Deployment
from simulator.domain.model_spec import Unquantized
from simulator.domain.rank_weights import rank_weights
from simulator.domain.stored_format import Format
from simulator.errors import InputErrors
from support.published_configs import CONFIGS

BYTES = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "F8_E8M0": 1, "U8": 1, "I8": 1, "I32": 4}
H, W, V, LAYERS = 256, 512, 1024, 2
CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": H, "intermediate_size": W, "vocab_size": V,
          "num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 4, "tie_word_embeddings": False,
          "max_position_embeddings": 4096, "torch_dtype": "bfloat16", "attention_bias": False, "mlp_bias": False}
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
# embedding, head, 2 layers of 4 h^2 + 3 h w + 2 norms, a norm
PARAMETERS = 2 * V * H + LAYERS * (4 * H * H + 3 * H * W + 2 * H) + H


def header_of(tensors):
    table, place = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape) in tensors.items():
        size = BYTES[dtype]
        for each in shape:
            size *= each
        table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text


def llama(quantised=(), **others):
    """Return the tensors of CONFIG; modules named by `quantised` in fp8 blocks."""
    shapes = {"embed_tokens": (V, H), "norm": (H,)}
    for i in range(LAYERS):
        shapes |= {f"layers.{i}.self_attn.{each}_proj": (H, H) for each in "qkvo"}
        shapes |= {f"layers.{i}.mlp.gate_proj": (W, H), f"layers.{i}.mlp.up_proj": (W, H),
                   f"layers.{i}.mlp.down_proj": (H, W), f"layers.{i}.input_layernorm": (H,),
                   f"layers.{i}.post_attention_layernorm": (H,)}
    found = {"lm_head.weight": ("BF16", (V, H))}
    for name, shape in shapes.items():
        is_fp8 = any(part in name for part in quantised) and len(shape) == 2
        found[f"model.{name}.weight"] = ("F8_E4M3" if is_fp8 else "BF16", shape)
        if is_fp8:
            found[f"model.{name}.weight_scale_inv"] = ("F32", tuple(-(-each // 128) for each in shape))
    return found | others


def written(folder, config, **files):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for name, tensors in files.items():
        (folder / f"{name}.safetensors").write_bytes(header_of(tensors))
    return folder


def index_of(folder, total, places):
    (folder / "model.safetensors.index.json").write_text(json.dumps(
        {"metadata": {"total_size": total}, "weight_map": places}))


def test_headers_settle_formats_where_the_table_says_less(tmp_path):
    plain = read_config(written(tmp_path / "a", CONFIG | {"quantization_config": FP8}))
    settled = read_config(written(tmp_path / "b", CONFIG | {"quantization_config": FP8}, model=llama(("mlp",))))

    assert plain.quantization.unquantized is None
    assert settled.quantization.unquantized == Unquantized(attention="all")
    assert (settled.quantization.group_size, settled.quantization.scale_bits) == (128 * 128, 32)
    # 4 bytes a block: 3 matrices of 4 x 2 blocks a layer
    assert rank_weights(Deployment(model=settled, accelerator=None)).num_bytes == pytest.approx(
        2 * PARAMETERS - LAYERS * 3 * H * W + 4 * LAYERS * 3 * 8, rel=1e-9)


def test_source_is_told_by_describe_and_where_memory_is_planned(tmp_path):
    model = read_config(written(tmp_path / "own", CONFIG, model=llama()))

    assert model.num_parameters == PARAMETERS
    assert model.source == "config.json, headers of 1 safetensors file"
    note = "own: headers of 1 safetensors file: 0.00 GB of tensors, as the keys of config.json make"
    assert Deployment(model=model, accelerator=None).checkpoint_notes() == [note]
    text = " ".join(describe_text("model", str(tmp_path / "own" / "config.json"), read_config).split())
    assert note in text
    assert "Source: config.json, headers of 1 safetensors file" in text


def test_index_alone_settles_the_sum_and_a_difference_is_told(tmp_path):
    folder = written(tmp_path / "own", CONFIG)
    index_of(folder, 2 * PARAMETERS, {"lm_head.weight": "model-1.safetensors"})
    same = read_config(folder)
    index_of(folder, 3 * PARAMETERS, {"lm_head.weight": "model-1.safetensors"})
    other = read_config(folder)

    assert same.source == other.source == "config.json, model.safetensors.index.json, total_size"
    assert same.checkpoint_note.endswith("as the keys of config.json make")
    assert "the keys of config.json make 0.00 GB (-33.3%): memory is planned with the latter" in other.checkpoint_note


def test_keys_that_make_another_model_than_the_tensors_are_refused(tmp_path):
    for changes in ({"intermediate_size": 2 * W}, {"num_hidden_layers": LAYERS - 1}, {"vocab_size": V + 200}):
        with pytest.raises(InputErrors, match=r"its keys make 0\.\d+ G parameters, headers of 1 safetensors"):
            read_config(written(tmp_path / "own", CONFIG | changes, model=llama()))


def test_drafter_tower_and_repeated_head_do_not_count(tmp_path):
    tensors = llama(**{"mtp.layers.0.mlp.up_proj.weight": ("BF16", (W, H)),
                       "visual.blocks.0.mlp.fc1.weight": ("BF16", (4 * W, H))})
    model = read_config(written(tmp_path / "own", CONFIG | {"tie_word_embeddings": True}, model=tensors))

    assert model.num_parameters == PARAMETERS - V * H


def test_files_of_an_index_are_read_together_and_pointers_are_not_tensors(tmp_path):
    tensors = llama()
    names = sorted(tensors)
    halves = {name: tensors[name] for name in names[:9]}, {name: tensors[name] for name in names[9:]}
    folder = written(tmp_path / "own", CONFIG, first=halves[0], second=halves[1])
    index_of(folder, 2 * PARAMETERS, {name: f"{'first' if name in halves[0] else 'second'}.safetensors"
                                      for name in tensors})
    both = read_tensor_files(folder)
    assert both.source == "headers of 2 safetensors files"
    assert both.total_bytes == 2 * PARAMETERS

    (folder / "second.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
    assert read_tensor_files(folder).tensors is None
    assert read_tensor_files(folder).total_bytes == 2 * PARAMETERS
    (folder / "model.safetensors.index.json").unlink()
    (folder / "first.safetensors").unlink()
    assert read_tensor_files(folder) is None


def test_adapters_and_the_second_copy_of_a_model_are_left_aside(tmp_path):
    folder = written(tmp_path / "own", CONFIG, model=llama(), consolidated=llama(), adapter_model=llama())

    assert read_tensor_files(folder).total_bytes == 2 * PARAMETERS


def test_links_are_followed(tmp_path):
    folder = written(tmp_path / "own", CONFIG)
    (tmp_path / "blob").write_bytes(header_of(llama()))
    (folder / "model.safetensors").symlink_to(tmp_path / "blob")

    assert read_tensor_files(folder).total_bytes == 2 * PARAMETERS


GOOD = header_of({"a.weight": ("BF16", (2, 2))})


@pytest.mark.parametrize(("content", "said"), [
    (b"", "expected a safetensors file, found 0 bytes"),
    (b"1234", "expected a safetensors file, found 4 bytes"),
    ((2**63).to_bytes(8, "little") + b"{}", "9,223,372,036,854,775,808 bytes is announced, the file has 10"),
    (GOOD[:-9], "bytes is announced"),
    ((2).to_bytes(8, "little") + b"{]", "its header is no JSON"),
    ((4).to_bytes(8, "little") + b"\xff\xfe\xfd\xfc", "its header is no JSON"),
    ((2).to_bytes(8, "little") + b"[]", "expected a JSON object, found []"),
    (GOOD.replace(b"BF16", b"BF17"), "a.weight: expected dtype, shape and data_offsets that agree"),
    (GOOD.replace(b"[0, 8]", b"[0, 9]"), "a.weight: expected dtype, shape and data_offsets that agree"),
    (GOOD.replace(b"[2, 2]", b"[2,-2]"), "a.weight: expected dtype, shape and data_offsets that agree"),
    (GOOD.replace(b"[2, 2]", b'["2"]  '[:6]), "a.weight: expected dtype, shape")])
def test_file_that_is_no_safetensors_file_is_refused(content, said, tmp_path):
    folder = written(tmp_path / "own", CONFIG)
    (folder / "model.safetensors").write_bytes(content)

    with pytest.raises(InputErrors) as caught:
        read_config(folder)
    assert said in str(caught.value)
    assert str(folder / "model.safetensors") in str(caught.value)


def test_all_files_that_cannot_be_read_are_told_at_once(tmp_path):
    folder = written(tmp_path / "own", CONFIG)
    for name in "ab":
        (folder / f"model-{name}.safetensors").write_bytes(b"12345678{}")
    (folder / "model-c.safetensors").mkdir()

    with pytest.raises(InputErrors) as caught:
        read_tensor_files(folder)
    assert len(caught.value.faults) == 3


def test_a_pipe_in_place_of_a_file_does_not_stop_the_reader(tmp_path):
    folder = written(tmp_path / "own", CONFIG)
    os.mkfifo(folder / "model.safetensors")

    with pytest.raises(InputErrors, match="expected a file"):
        read_tensor_files(folder)


@pytest.mark.parametrize(("index", "said"), [
    ("{", "not JSON"), ("[]", "weight_map: expected a table of file names"),
    ('{"weight_map": {"a": "../../etc/passwd"}}', "weight_map: expected a table of file names in the same folder"),
    ('{"metadata": {"total_size": -1}, "weight_map": {}}', "metadata.total_size: expected an integer >= 1, found -1"),
    ("[" * 100_000, "not JSON")])
def test_index_that_is_none_is_refused(index, said, tmp_path):
    folder = written(tmp_path / "own", CONFIG)
    (folder / "model.safetensors.index.json").write_text(index)

    with pytest.raises(InputErrors) as caught:
        read_tensor_files(folder)
    assert said in str(caught.value)


def test_header_beyond_the_formats_bound_is_refused_unread(tmp_path):
    folder = written(tmp_path / "own", CONFIG)
    with (folder / "model.safetensors").open("wb") as opened:
        opened.write((LONGEST + 1).to_bytes(8, "little"))
        opened.truncate(LONGEST + 100)          # a hole, no bytes on the disk

    with pytest.raises(InputErrors, match="is announced"):
        read_tensor_files(folder)


INT8 = Format(method="gptq", weight_dtype="int8", columns=128, scale_bits=24)


@pytest.mark.parametrize(("tensors", "stated", "dtype", "block", "stored", "parameters"), [     # 256 x 512
    ({"weight": ("F8_E4M3", (256, 512)), "weight_scale_inv": ("F32", (2, 4))}, None, "fp8", (128, 128),
     131_072 + 32, 131_072),
    ({"weight": ("F8_E4M3", (256, 512)), "scale": ("F8_E8M0", (2, 4))}, None, "fp8", (128, 128), 131_072 + 8, 131_072),
    ({"weight": ("F8_E4M3", (256, 512)), "weight_scale": ("F32", ()), "input_scale": ("F32", ())}, None, "fp8", (0, 0),
     131_072 + 8, 131_072),
    ({"weight": ("F8_E4M3", (256, 512)), "weight_scale": ("F32", (256, 1))}, None, "fp8", (1, 0),
     131_072 + 1024, 131_072),
    ({"weight": ("F8_E4M3", (256, 512)), "weight_scale": ("U8", (256, 16))}, None, "fp8", (1, 32),
     131_072 + 4096, 131_072),
    ({"weight": ("U8", (256, 256)), "weight_scale": ("F8_E4M3", (256, 32)), "weight_scale_2": ("F32", ())}, None, "fp4",
     (1, 16), 65_536 + 8192 + 8, 131_072),
    ({"weight_packed": ("U8", (256, 256)), "weight_scale": ("U8", (256, 16))}, None, "fp4", (1, 32), 65_536 + 4096,
     131_072),
    ({"weight": ("I8", (256, 256)), "scale": ("F8_E8M0", (256, 16))}, None, "fp4", (1, 32), 65_536 + 4096, 131_072),
    ({"weight": ("I8", (256, 512)), "SCB": ("F32", (256,))}, None, "int8", (1, 0), 131_072 + 1024, 131_072),
    ({"weight": ("U8", (65_536, 1)), "weight.absmax": ("F32", (2048,))}, None, "int4", (1, 64), 65_536 + 8192, 131_072),
    ({"qweight": ("I32", (64, 256)), "qzeros": ("I32", (4, 32)), "scales": ("BF16", (4, 256)),
      "g_idx": ("I32", (512,))}, None, "int4", (1, 128), 65_536 + 2560, 131_072),
    ({"qweight": ("I32", (512, 32)), "qzeros": ("I32", (4, 32)), "scales": ("BF16", (4, 256))}, None, "int4", (1, 128),
     65_536 + 2560, 131_072),
    ({"qweight": ("I32", (128, 256)), "qzeros": ("I32", (4, 64)), "scales": ("BF16", (4, 256))}, INT8, "int8", (1, 128),
     131_072 + 3072, 131_072),
    ({"weight_packed": ("I32", (256, 64)), "weight_scale": ("BF16", (256, 16)), "weight_shape": ("I32", (2,))}, None,
     "int4", (1, 32), 65_536 + 8192, 131_072),
])
def test_format_of_a_matrix_follows_from_its_tensors(tensors, stated, dtype, block, stored, parameters):
    named = {f"m.{name}": Tensor(*each) for name, each in tensors.items()}
    found = matrices_of(named, "gptq", lambda module: stated)["m"]

    assert (found.format.weight_dtype, found.format.rows, found.format.columns) == (dtype, *block)
    assert found.format.stored_bytes(256, 512) == stored
    assert found.parameters == parameters


def test_experts_of_gpt_oss_are_found_by_their_blocks():
    found = matrices_of({"experts.down_proj_blocks": Tensor("U8", (4, 256, 16, 16)), "experts.down_proj_scales": Tensor(
        "U8", (4, 256, 16)), "experts.down_proj_bias": Tensor("BF16", (4, 256))}, "mxfp4", lambda module: None)

    assert found["experts.down_proj"].format.stored_bytes(256, 512) == 256 * 512 * (1 / 2 + 1 / 32)
    assert found["experts.down_proj"].parameters == 4 * (256 * 512 + 256)


def test_layers_of_a_drafter_follow_the_models(tmp_path):
    config = json.loads(json.dumps(CONFIGS["deepseek-v3"])) | {
        "num_hidden_layers": 4, "num_nextn_predict_layers": 1, "vocab_size": 1024, "hidden_size": 256}
    model = read_config(written(tmp_path / "own", config))
    draft = model.layer_parameters(3)
    tensors = {"model.all.weight": ("BF16", (model.num_parameters, 1)),
               "model.layers.4.all.weight": ("BF16", (draft, 1))}

    found = matrices_of({name: Tensor(*each) for name, each in tensors.items()}, "", lambda module: None)
    assert decoder_parameters(found, model) == model.num_parameters


def test_scales_of_blocks_as_many_as_outputs_are_no_scales_of_outputs():
    # DeepSeek-V3's o_proj: 56 x 128 blocks, 7,168 outputs
    found = matrices_of({"o_proj.weight": Tensor("F8_E4M3", (7168, 16384)),
                         "o_proj.weight_scale_inv": Tensor("F32", (56, 128))}, "fp8", lambda module: None)

    assert (found["o_proj"].format.rows, found["o_proj"].format.columns) == (128, 128)
