"""The published backbones: built by their real loaders, fed from local files, counted as the papers count."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from genbench.errors import UserError
from genbench.plugin.offers import Backbone, BackboneRequest
from genbench.zoo import clip, efficientnet, lite, timm_models
from genbench.zoo.features import Preprocess, extract_features
from genbench.zoo.loaded import LoadedBackbone
from genbench.zoo.weights import import_library

ALL = {b.name: b for m in (clip, efficientnet, lite, timm_models) for b in m.BACKBONES}

# Table 1 of paper 004, in millions, as printed.
TABLE_1 = {
    "efficientnet:b0": "5.3",
    "efficientnet:b1": "7.8",
    "efficientnet:b2": "9.2",
    "efficientnet:b3": "12",
    "efficientnet:b4": "19",
    "efficientnet:b5": "30",
    "efficientnet:b6": "43",
    "efficientnet:b7": "66",
    "clip:RN50": "38",
    "clip:RN101": "56",
    "clip:RN50x4": "87",
    "clip:RN50x16": "167",
    "clip:RN50x64": "420",
    "clip:ViT-B-32": "87",
    "clip:ViT-B-16": "86",
    "clip:ViT-L-14": "304",
}
# Two entries are not the library's count rounded to the nearest: b2 has 9.11 M weights and ViT-B/32 has
# 87.85 M. Both are still within one unit of the last printed digit.
NOT_NEAREST = {"efficientnet:b2", "clip:ViT-B-32"}


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cache of this machine is seen, and one thread is used."""
    import huggingface_hub.constants

    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    torch.set_num_threads(1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.mkdir()
    return path


def network(name: str) -> nn.Module:
    family, _, size = name.partition(":")
    module: nn.Module = {"clip": clip, "efficientnet": efficientnet, "lite": lite}[family].build(size)
    return module


def on_meta(name: str) -> Any:
    with torch.device("meta"):
        return network(name)


def random_state(model: nn.Module, dtype: torch.dtype) -> dict[str, Tensor]:
    """Seeded weights small enough that a forward pass through a deep network stays finite in fp32."""
    generator = torch.Generator().manual_seed(0)
    # Drawing 600 million numbers takes longer than loading them: a few, from another place for every tensor.
    drawn = torch.randn(2**20 + 7, generator=generator).mul_(0.05).to(dtype)
    state = {}
    for place, (name, value) in enumerate(model.state_dict().items()):
        if not value.is_floating_point():
            state[name] = torch.zeros(value.shape, dtype=value.dtype)
        elif name.endswith("running_var"):
            state[name] = torch.ones(value.shape, dtype=dtype)
        else:
            some = drawn.roll(-997 * place)
            times = -(-value.numel() // len(some))
            state[name] = some.repeat(times)[: value.numel()].reshape(value.shape).clone()
    return state


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def raw_images(count: int = 2, height: int = 40, width: int = 48) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    coarse = torch.rand(count, 3, 5, 6, generator=generator)
    smooth = nn.functional.interpolate(coarse, size=(height, width), mode="bilinear")
    return smooth.mul(255).to(torch.uint8)


def features_of(loaded: LoadedBackbone, count: int = 1) -> Tensor:
    return torch.cat(list(extract_features(loaded, raw_images(count))))


class TestCounts:
    @pytest.mark.parametrize("name", TABLE_1)
    def test_weight_count_is_that_of_table_1(self, name: str) -> None:
        model = on_meta(name)
        tower = model.visual if name.startswith("clip") else model
        counted = sum(parameter.numel() for parameter in tower.parameters())
        assert ALL[name].weight_count == counted

        printed = TABLE_1[name]
        unit = 0.1 if "." in printed else 1.0
        difference = abs(counted / 1e6 - float(printed))
        assert difference < (unit if name in NOT_NEAREST else unit / 2)

    @pytest.mark.parametrize("name", [n for n in ALL if n != "timm:"])
    def test_declared_sizes_are_those_of_the_network(self, name: str) -> None:
        """A forward pass on the meta device: shapes without arithmetic, for the largest networks too."""
        declared = ALL[name]
        model = on_meta(name).eval()
        tower = model.visual if name.startswith("clip") else model
        if not name.startswith("clip"):
            assert declared.image_size == model._global_params.image_size
            tower._fc = nn.Identity()
        assert declared.image_size is not None
        images = torch.empty(2, 3, declared.image_size, declared.image_size, device="meta")
        assert tuple(tower(images).shape) == (2, declared.feature_width)

    def test_lite_counts(self) -> None:
        for name in ("lite:0", "lite:1", "lite:2"):
            assert ALL[name].weight_count == sum(p.numel() for p in on_meta(name).parameters())


class TestClip:
    # One loader for all; the sizes of all are counted on the meta device above.
    @pytest.mark.parametrize("size", ["RN50", "RN50x4", "ViT-B-32"])
    def test_random_weights_from_a_local_file(self, size: str, folder: Path) -> None:
        name = f"clip:{size}"
        state = random_state(on_meta(name), torch.float16)
        path = folder / f"{size}.safetensors"
        save_file(state, path)
        kept = {key: state[f"visual.{key}"] for key in on_meta(name).visual.state_dict()}
        del state
        request = BackboneRequest(weights=folder)
        assert ALL[name].available(request).ready

        loaded = ALL[name].load(request)

        assert loaded.weights_hash == sha256(path)
        assert loaded.weight_count == ALL[name].weight_count
        for key, value in loaded.module.state_dict().items():
            assert torch.equal(value, kept[key].to(value.dtype)), key
        features = features_of(loaded)
        assert features.shape == (1, ALL[name].feature_width)
        assert torch.isfinite(features).all()
        assert features.std() > 0

        assert loaded.encode_text is not None
        texts = loaded.encode_text([loaded.prompt.format(name=word) for word in ("tench", "goldfish")])
        assert texts.shape == (2, loaded.feature_width)
        assert torch.allclose(texts.norm(dim=1), torch.ones(2), atol=1e-5)
        path.unlink()  # hundreds of megabytes that pytest would keep

    def test_the_activation_is_openais(self) -> None:
        """open_clip's own loader for the tag "openai" insists on QuickGELU."""
        open_clip = import_library("open_clip")
        for size in ("RN50", "ViT-B-32"):
            assert open_clip.get_pretrained_cfg(size, "openai")["quick_gelu"]
            model = on_meta(f"clip:{size}")
            gates = [m for m in model.modules() if isinstance(m, nn.GELU | open_clip.model.QuickGELU)]
            assert gates
            assert all(isinstance(gate, open_clip.model.QuickGELU) for gate in gates)

    def test_repositories_are_those_open_clip_lists(self) -> None:
        open_clip = import_library("open_clip")
        for size in clip._SIZES:
            assert open_clip.get_pretrained_cfg(size.name, "openai")["hf_hub"] == f"{size.repository}/"

    def test_the_hub_cache_is_found(self, tmp_path: Path) -> None:
        """The layout in which open_clip's own download of "openai" ends."""
        repository = tmp_path / "hub" / "models--timm--resnet50_clip.openai"
        file = repository / "snapshots" / "abc" / "open_clip_model.safetensors"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"")
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text("abc")
        availability = ALL["clip:RN50"].available(BackboneRequest())
        assert availability.ready
        assert availability.detail == str(file)

    @pytest.mark.filterwarnings("ignore:.*torch.jit", "ignore:.*TorchScript")
    def test_a_torchscript_archive_is_refused_in_one_sentence(self, folder: Path) -> None:
        scripted = torch.jit.script(nn.Linear(2, 2))
        torch.jit.save(scripted, str(folder / "RN50.pt"))
        with pytest.raises(UserError, match="never TorchScript or pickled objects") as caught:
            ALL["clip:RN50"].load(BackboneRequest(weights=folder))
        assert "\n" not in str(caught.value)


class TestEfficientNet:
    @pytest.mark.parametrize("size", ["b0", "b2", "b4"])
    def test_random_weights_from_a_local_file(self, size: str, folder: Path) -> None:
        name = f"efficientnet:{size}"
        state = random_state(on_meta(name), torch.float32)
        path = folder / efficientnet._SIZES[int(size[1])].file
        torch.save(state, path)
        request = BackboneRequest(weights=folder)
        assert ALL[name].available(request).ready

        loaded = ALL[name].load(request)

        assert loaded.weights_hash == sha256(path)
        assert loaded.weight_count == ALL[name].weight_count
        for key, value in loaded.module.state_dict().items():
            assert torch.equal(value, state[key]), key
        features = features_of(loaded)
        assert features.shape == (1, ALL[name].feature_width)
        assert torch.isfinite(features).all()
        assert features.std() > 0
        path.unlink()

    def test_file_names_are_those_of_the_library(self) -> None:
        from efficientnet_pytorch.utils import url_map

        for size in efficientnet._SIZES:
            assert url_map[f"efficientnet-{size.name}"].endswith(f"/{size.file}")

    def test_features_are_the_librarys_own(self, folder: Path) -> None:
        """Against the library's network with its own activation and its own pooling."""
        from efficientnet_pytorch import EfficientNet

        reference = EfficientNet.from_name("efficientnet-b0")
        state = random_state(reference, torch.float32)
        reference.load_state_dict(state)
        reference.eval()
        save_file(state, folder / "efficientnet-b0.safetensors")
        loaded = ALL["efficientnet:b0"].load(BackboneRequest(weights=folder))
        images = torch.rand(1, 3, 224, 224, generator=torch.Generator().manual_seed(2))
        with torch.no_grad():
            expected = reference._avg_pooling(reference.extract_features(images)).flatten(1)
            assert torch.allclose(loaded.module(images), expected, atol=1e-6)


class TestLite:
    @pytest.mark.parametrize("size", ["0", "1", "2"])
    def test_real_weights_give_the_librarys_logits(
        self, size: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        from efficientnet_lite_pytorch import EfficientNet

        request = BackboneRequest()
        path = ALL[f"lite:{size}"].available(request).detail
        reference = EfficientNet.from_pretrained(f"efficientnet-lite{size}", weights_path=path).eval()
        loaded = ALL[f"lite:{size}"].load(request)
        side = ALL[f"lite:{size}"].image_size
        images = torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            difference = (reference._fc(loaded.module(images)) - reference(images)).abs().max().item()
        assert difference <= 1e-5

    @pytest.mark.parametrize("size", ["0", "1", "2"])
    def test_real_weights_know_a_palace(self, size: str) -> None:
        """Weights, preprocessing and class order together, on the photo that scikit-learn ships."""
        from efficientnet_lite_pytorch import EfficientNet
        from sklearn.datasets import load_sample_image

        names = import_library("open_clip").IMAGENET_CLASSNAMES
        path = ALL[f"lite:{size}"].available(BackboneRequest()).detail
        head = EfficientNet.from_pretrained(f"efficientnet-lite{size}", weights_path=path)._fc
        photo = torch.from_numpy(load_sample_image("china.jpg").copy()).permute(2, 0, 1)[None]
        loaded = ALL[f"lite:{size}"].load(BackboneRequest())
        (features,) = extract_features(loaded, photo)
        assert names[int(head(features).argmax())] == "palace"

    def test_random_weights_from_a_local_file_come_first(self, folder: Path) -> None:
        state = random_state(on_meta("lite:0"), torch.float32)
        save_file(state, folder / "efficientnet-lite0.safetensors")
        loaded = ALL["lite:0"].load(BackboneRequest(weights=folder))
        assert torch.equal(loaded.module.state_dict()["_conv_stem.weight"], state["_conv_stem.weight"])
        assert loaded.weights_hash == sha256(folder / "efficientnet-lite0.safetensors")


class TestTimm:
    @pytest.mark.parametrize("name", ["resnet18.a1_in1k", "vit_tiny_patch16_224", "mobilenetv3_small_050"])
    def test_random_weights_from_a_local_file(self, name: str, folder: Path) -> None:
        timm = import_library("timm")
        published = timm.create_model(name)
        state = random_state(published, torch.float32)
        published.load_state_dict(state)
        save_file(state, folder / f"{name}.safetensors")
        request = BackboneRequest(argument=name, weights=folder)
        assert ALL["timm:"].available(request).ready

        loaded = ALL["timm:"].load(request)

        assert loaded.weight_count == sum(p.numel() for p in published.parameters())
        assert loaded.weights_hash == sha256(folder / f"{name}.safetensors")
        assert "state_dict" not in loaded.module.pretrained_cfg
        reference = timm.create_model(name, num_classes=0).eval()
        reference.load_state_dict({key: state[key] for key in reference.state_dict()})
        images = raw_images(1)
        with torch.no_grad():
            expected = reference(loaded.preprocess(images))
        assert expected.shape == (1, loaded.feature_width)
        assert torch.allclose(features_of(loaded), expected, atol=1e-6)

    def test_a_file_of_another_network_is_named(self, folder: Path) -> None:
        timm = import_library("timm")
        state = timm.create_model("resnet18").state_dict()
        save_file(state, folder / "resnet26.safetensors")
        with pytest.raises(
            UserError, match=r"resnet26\.safetensors does not hold the weights of timm:resnet26"
        ):
            ALL["timm:"].load(BackboneRequest(argument="resnet26", weights=folder))

    def test_an_unknown_name_is_an_error_of_one_sentence(self) -> None:
        with pytest.raises(UserError, match="no pretrained model 'no_such_net'"):
            ALL["timm:"].load(BackboneRequest(argument="no_such_net"))


def pil_photo(height: int, width: int) -> Image.Image:
    pixels = raw_images(1, height, width)[0].permute(1, 2, 0).numpy()
    texture = np.random.RandomState(0).randint(0, 30, pixels.shape)
    return Image.fromarray((pixels * 0.85 + texture).astype(np.uint8))


class TestPreprocessing:
    """Against the libraries' own PIL transforms, in grey levels of 255."""

    def compare(self, ours: Preprocess, theirs: Any, photo: Image.Image, share: float = 0.01) -> None:
        batch = torch.from_numpy(np.array(photo)).permute(2, 0, 1)[None]
        mine, reference = ours(batch)[0], theirs(photo)
        assert mine.shape == reference.shape
        assert mine.dtype == torch.float32
        grey = (mine - reference).abs() * torch.tensor(ours.std).view(3, 1, 1) * 255
        assert grey.max() < 2.01
        assert (grey > 0.01).float().mean() < share

    @pytest.mark.parametrize(("height", "width"), [(32, 32), (333, 500), (500, 331), (224, 224)])
    def test_clip(self, height: int, width: int) -> None:
        open_clip = import_library("open_clip")
        theirs = open_clip.image_transform(224, is_train=False)
        ours = Preprocess(224, open_clip.OPENAI_DATASET_MEAN, open_clip.OPENAI_DATASET_STD)
        self.compare(ours, theirs, pil_photo(height, width))

    @pytest.mark.parametrize(("height", "width"), [(32, 32), (333, 500), (500, 331)])
    @pytest.mark.parametrize(
        "change",
        [{}, {"interpolation": "bilinear"}, {"crop_mode": "squash"}, {"crop_pct": 1.0}],
        ids=["center", "bilinear", "squash", "whole"],
    )
    def test_timm(self, change: dict[str, Any], height: int, width: int) -> None:
        timm = import_library("timm")
        config = {**timm.data.resolve_data_config({}, model=timm.create_model("resnet18")), **change}
        theirs = import_library("timm.data").create_transform(**config)
        # Pillow 13 squashes tall images vertical axis first, torch always horizontal axis first.
        share = 0.3 if height > width and "crop_mode" in change else 0.01
        self.compare(timm_models._preprocess("resnet18", config), theirs, pil_photo(height, width), share)

    def test_grey_images_become_three_equal_channels(self) -> None:
        grey = raw_images(1)[:, :1]
        result = Preprocess(28, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))(grey)
        assert result.shape == (1, 3, 28, 28)
        assert torch.equal(result[:, 0], result[:, 2])

    def test_only_raw_bytes_are_taken(self) -> None:
        with pytest.raises(TypeError, match="uint8"):
            Preprocess(28, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))(raw_images(1).float())


class TestMissingWeights:
    @pytest.mark.parametrize("name", ["clip:RN50", "efficientnet:b3"])
    def test_one_sentence_says_what_to_fetch_and_where_to_put_it(self, name: str, folder: Path) -> None:
        request = BackboneRequest(weights=folder)
        with pytest.raises(UserError) as caught:
            ALL[name].load(request)
        message = str(caught.value)
        assert message == ALL[name].available(request).detail
        assert str(folder) in message
        assert "\n" not in message
        assert "://" not in message
        assert message.endswith(".")
        assert ("open_clip" if name.startswith("clip") else "efficientnet-b3-5fb5a3c3.pth") in message

    def test_a_failed_download_says_the_same(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def no_network(*_: object, **__: object) -> None:
            raise OSError("Name or service not known")

        monkeypatch.setattr(torch.hub, "download_url_to_file", no_network)
        with pytest.raises(UserError, match=r"Name or service not known.*put the file at"):
            ALL["efficientnet:b0"].load(BackboneRequest(weights=folder, download=True))

    def test_a_download_lands_in_torch_hubs_cache(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        state = random_state(on_meta("efficientnet:b0"), torch.float32)
        asked = []

        def fetch(address: str, target: str, prefix: str | None) -> None:
            asked.append((address, prefix))
            torch.save(state, target)

        monkeypatch.setattr(torch.hub, "download_url_to_file", fetch)
        ALL["efficientnet:b0"].load(BackboneRequest(download=True))
        from efficientnet_pytorch.utils import url_map

        assert asked == [(url_map["efficientnet-b0"], "355c32eb")]
        assert Path(torch.hub.get_dir(), "checkpoints", "efficientnet-b0-355c32eb.pth").is_file()
        assert ALL["efficientnet:b0"].available(BackboneRequest()).ready

    def test_a_missing_folder_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="does not exist"):
            ALL["clip:RN50"].load(BackboneRequest(weights=tmp_path / "nowhere"))

    def test_a_pickle_that_would_run_code_is_refused(self, folder: Path) -> None:
        class Evil:
            def __reduce__(self) -> tuple[Any, ...]:
                return (Path.touch, (folder / "was_run",))

        torch.save({"weight": Evil()}, folder / "efficientnet-b0-355c32eb.pth")
        with pytest.raises(UserError, match="cannot be read as plain weights"):
            ALL["efficientnet:b0"].load(BackboneRequest(weights=folder))
        assert not (folder / "was_run").exists()

    def test_a_damaged_file_is_named(self, folder: Path) -> None:
        (folder / "RN50.safetensors").write_bytes(b"not a weight file")
        with pytest.raises(UserError, match=r"RN50\.safetensors cannot be read"):
            ALL["clip:RN50"].load(BackboneRequest(weights=folder))


class _Means(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.mean((2, 3))


class TestExtractFeatures:
    backbone = LoadedBackbone("means", _Means().eval(), lambda raw: raw.float(), 3, 0, "")

    def test_features_follow_the_images(self) -> None:
        images = raw_images(7)
        batches = list(extract_features(self.backbone, images, batch_size=3))
        assert [len(batch) for batch in batches] == [3, 3, 1]
        assert torch.allclose(torch.cat(batches), images.float().mean((2, 3)))
        assert list(extract_features(self.backbone, images[:0])) == []

    def test_a_head_can_be_trained_on_them(self) -> None:
        (features,) = extract_features(self.backbone, raw_images(2))
        head = nn.Linear(3, 2)
        head(features).sum().backward()
        assert head.weight.grad is not None

    def test_training_mode_is_refused(self) -> None:
        training = LoadedBackbone("means", _Means().train(), lambda raw: raw.float(), 3, 0, "")
        with pytest.raises(ValueError, match="training mode"):
            list(extract_features(training, raw_images(1)))

    def test_an_error_while_preparing_ahead_is_the_callers(self) -> None:
        def prepare(raw: Tensor) -> Tensor:
            if raw.max() == 255:
                raise ArithmeticError("white")
            return raw[..., ::2].float()  # another size, so that a thread prepares

        images = raw_images(3).clamp(max=254)
        images[2] = 255
        backbone = LoadedBackbone("means", _Means().eval(), prepare, 3, 0, "")
        with pytest.raises(ArithmeticError, match="white"):
            list(extract_features(backbone, images, batch_size=1))


def test_listing_imports_no_heavy_library() -> None:
    code = (
        "import sys\n"
        "from genbench.plugin.offers import BackboneRequest\n"
        "from genbench.zoo import clip, efficientnet, lite, timm_models\n"
        "for m in (clip, efficientnet, lite, timm_models):\n"
        "    for b in m.BACKBONES: b.available(BackboneRequest(argument='resnet18'))\n"
        "heavy = {'torch', 'torchvision', 'timm', 'open_clip'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_names_are_unique_and_families_are_named() -> None:
    everything: list[Backbone] = [b for m in (clip, efficientnet, lite, timm_models) for b in m.BACKBONES]
    assert len({b.name for b in everything}) == len(everything) == 8 + 8 + 3 + 1
    assert all(b.name.startswith(f"{b.family}:") for b in everything)
