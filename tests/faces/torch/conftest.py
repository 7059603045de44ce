import pytest


@pytest.fixture(autouse=True)
def no_grad():
    import torch  # is an extra

    torch.manual_seed(0)
    with torch.no_grad():
        yield
