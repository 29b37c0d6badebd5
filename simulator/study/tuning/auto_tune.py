RESULT = "result.txt"
def auto_tune(*_):
    raise NotImplementedError
